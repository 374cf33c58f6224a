"""ray.util.queue.Queue between producers and consumers, its batches, its bounds and its two exceptions."""

import ray
from ray.util.queue import Empty, Full, Queue


@ray.remote(num_cpus=0.1)
class Producer:
    def produce(self, queue, first, count):
        for n in range(first, first + count):
            queue.put(n)
        return count


@ray.remote(num_cpus=0.1)
class Consumer:
    def consume(self, queue):
        total = 0
        while (item := queue.get()) is not None:
            total += item
        return total


@ray.remote(num_cpus=0.1)
class Patient:
    async def take(self, queue, count):
        return [await queue.get_async() for _ in range(count)]


def bounds():
    queue = Queue(maxsize=2)
    queue.put("a")
    queue.put_nowait("b")
    for attempt in (lambda: queue.put_nowait("c"), lambda: queue.put("c", timeout=0.1)):
        try:
            attempt()
        except Full as error:
            print("app:", type(error).__module__, type(error).__name__, queue.full(), queue.qsize())
    print("app:", queue.get(), queue.get_nowait(), queue.empty())
    for attempt in (queue.get_nowait, lambda: queue.get(timeout=0.1)):
        try:
            attempt()
        except Empty as error:
            print("app:", type(error).__name__, len(queue))
    queue.put_nowait_batch([1, 2])
    print("app:", queue.get_nowait_batch(2))
    queue.shutdown()


def main():
    bounds()
    queue = Queue(maxsize=10, actor_options={"num_cpus": 0})
    producers, consumers = [Producer.remote() for _ in range(2)], [Consumer.remote() for _ in range(2)]
    totals = [consumer.consume.remote(queue) for consumer in consumers]
    print("app:", ray.get([one.produce.remote(queue, 1_000 * n, 400) for n, one in enumerate(producers)]))
    for _ in consumers:
        queue.put(None)
    print("app:", sum(ray.get(totals)), queue.empty())
    taken = Patient.remote().take.remote(queue, 3)
    for n in range(3):
        queue.put(n)
    print("app:", ray.get(taken))


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main()
    print("app:", "the end")
