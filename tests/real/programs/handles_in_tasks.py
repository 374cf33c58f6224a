"""Handles in the arguments of tasks and actors, in lists and in the store; an actor that hands out itself; progress reports."""

import ray


@ray.remote(num_cpus=0)
class Progress:
    def __init__(self, total):
        self.total, self.done = total, {}

    def report(self, task, done):
        self.done[task] = done

    def get(self):
        return sum(self.done.values()) / self.total


@ray.remote(num_cpus=0.5)
def samples(task, count, progress):
    inside, state = 0, task + 1
    for n in range(count):
        state = (1_103_515_245 * state + 12_345) % 2**31
        x = state / 2**31
        state = (1_103_515_245 * state + 12_345) % 2**31
        inside += x * x + (state / 2**31) ** 2 <= 1
        if (n + 1) % (count // 10) == 0:
            progress.report.remote(task, n + 1)
    return inside


@ray.remote(num_cpus=0)
class Self:
    def handle(self):
        return ray.get_runtime_context().current_actor

    def make(self):
        self.made = Self.remote()
        return self.made

    def double(self, n):
        return 2 * n

    async def call_back(self, handles, n):
        return sum([await handle.double.remote(n) for handle in handles])


@ray.remote(num_cpus=0.1)
def by_list(handles, n):
    return ray.get([handle.double.remote(n) for handle in handles])


@ray.remote(num_cpus=0.1)
def runs(function):
    return function()


def main():
    tasks, count = 4, 50_000
    progress = Progress.remote(tasks * count)
    results = [samples.remote(task, count, progress) for task in range(tasks)]
    print("app:", sum(ray.get(results)))
    while ray.get(progress.get.remote()) < 1:
        pass
    print("app:", ray.get(progress.get.remote()))
    one = Self.remote()
    itself = ray.get(one.handle.remote())
    print("app:", itself == one, ray.get(itself.double.remote(4)), ray.get(by_list.remote([one, itself], 5)))
    made = ray.get(one.make.remote())
    by_closure = runs.remote(lambda: ray.get(made.double.remote(9)))
    print("app:", ray.get([made.double.remote(8), by_closure]), {one: "found"}[itself])
    stored = ray.put({"handle": one})
    print("app:", ray.get(ray.get(stored)["handle"].double.remote(6)))
    others = [Self.remote() for _ in range(3)]
    print("app:", ray.get(others[0].call_back.remote(others[1:], 7)))


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main()
    print("app:", "the end")
