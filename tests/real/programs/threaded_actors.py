"""Threaded actors: how many calls run at once, in which threads; out of order execution; threads of the actor's own."""

import queue
import sqlite3
import threading

import ray


@ray.remote(num_cpus=0.1, max_concurrency=4)
class Threaded:
    def __init__(self):
        self.barrier = threading.Barrier(4, timeout=60)
        self.main = threading.current_thread()

    def meet(self):
        self.barrier.wait()
        return threading.current_thread() is not self.main

    def where(self):
        return threading.current_thread() is threading.main_thread()


@ray.remote(num_cpus=0.1)
class Plain:
    def __init__(self):
        self.local = threading.local()
        self.local.owner = "constructor"
        self.rows = sqlite3.connect(":memory:")
        self.rows.execute("create table notes (number integer)")

    def note(self, number):
        self.rows.execute("insert into notes values (?)", (number,))

    def notes(self):
        return [number for (number,) in self.rows.execute("select number from notes order by rowid")], self.local.owner

    def where(self):
        one = threading.current_thread()
        return one is threading.main_thread(), one.name

    def names(self):
        return sorted(one.name for one in threading.enumerate() if not one.name.startswith(("ray", "Thread")))


@ray.remote(num_cpus=0.1)
class WithThread:
    def __init__(self, counter):
        self.work, self.results = queue.Queue(), queue.Queue()
        self.thread = threading.Thread(target=self.run, args=(counter,), name="own-worker", daemon=True)
        self.thread.start()

    def run(self, counter):
        while (item := self.work.get()) is not None:
            self.results.put(ray.get(counter.add.remote(item)))

    def submit(self, item):
        self.work.put(item)
        return self.results.get()

    def stop(self):
        self.work.put(None)
        self.thread.join()
        return self.thread.is_alive()


@ray.remote(num_cpus=0.1)
class Counter:
    def __init__(self):
        self.value = 0

    def add(self, n):
        self.value += n
        return self.value


def main():
    threaded = Threaded.remote()
    print("app:", ray.get([threaded.meet.remote() for _ in range(8)]), ray.get(threaded.where.remote()))
    plain = Plain.remote()
    print("app:", ray.get(plain.where.remote()), ray.get(plain.names.remote()))
    for number in range(100):
        plain.note.remote(number)
    print("app:", ray.get(plain.notes.remote()))
    own = WithThread.remote(Counter.remote())
    print("app:", ray.get([own.submit.remote(n) for n in range(200)])[-1], ray.get(own.stop.remote()))


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main()
    print("app:", "the end")
