"""A pipeline: workers fetch the next piece of work while they compute the last, and send on what they made."""

import ray


@ray.remote(num_cpus=0.1)
class Work:
    def __init__(self, count):
        self.rest = list(range(count))

    def next(self):
        return self.rest.pop() if self.rest else None


@ray.remote(num_cpus=0.1)
class Sink:
    def __init__(self):
        self.total, self.count = 0, 0

    def take(self, value):
        self.total += value
        self.count += 1

    def told(self):
        return self.count, self.total


@ray.remote(num_cpus=0.1)
class Worker:
    def __init__(self, work, sink):
        self.work, self.sink = work, sink

    def process(self, n):
        return sum(range(n % 7 * 10_000))

    def run(self):
        upcoming, sent = self.work.next.remote(), []
        while True:
            piece = ray.get(upcoming)
            if piece is None:
                return len(ray.get(sent))
            upcoming = self.work.next.remote()
            sent.append(self.sink.take.remote(self.process(piece)))


def main():
    for count in (100, 2_000):
        work, sink = Work.remote(count), Sink.remote()
        workers = [Worker.remote(work, sink) for _ in range(3)]
        print("app:", sum(ray.get([worker.run.remote() for worker in workers])), ray.get(sink.told.remote()))


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main()
    print("app:", "the end")
