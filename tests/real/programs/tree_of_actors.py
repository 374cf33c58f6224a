"""A tree of actors: a supervisor makes workers, asks them in rounds, and lets them go."""

import ray


@ray.remote(num_cpus=0.1)
class Worker:
    def __init__(self, number):
        self.number = number
        self.rounds = 0

    def work(self, upto):
        self.rounds += 1
        return sum(n for n in range(upto) if n % 7 == self.number)

    def told(self):
        return self.number, self.rounds


@ray.remote(num_cpus=0.1)
class Supervisor:
    def __init__(self, workers):
        self.workers = [Worker.remote(number) for number in range(workers)]

    def round(self, upto):
        return sum(ray.get([worker.work.remote(upto) for worker in self.workers]))

    def ask_one_after_the_other(self):
        return [ray.get(worker.told.remote()) for worker in self.workers]

    def hand_out(self):
        return self.workers


def main():
    supervisors = [Supervisor.remote(3), Supervisor.remote(2)]
    for upto in (1_000, 300_000, 600_000, 900_000):
        print("app:", upto, ray.get([supervisor.round.remote(upto) for supervisor in supervisors]))
    print("app:", ray.get([supervisor.ask_one_after_the_other.remote() for supervisor in supervisors]))
    theirs = ray.get(supervisors[0].hand_out.remote())
    print("app:", [ray.get(worker.work.remote(100)) for worker in theirs], type(theirs[0]).__name__)
    print("app:", ray.util.list_named_actors(all_namespaces=True))


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main()
    print("app:", "the end")
