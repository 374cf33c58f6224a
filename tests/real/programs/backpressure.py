"""Bounds on what is pending: ray.wait before more is sent, max_pending_calls, timeouts of get and wait, and retries of them."""

import threading

import ray


@ray.remote(num_cpus=0.1, max_concurrency=2)
class Gate:
    def __init__(self):
        self.event = threading.Event()

    def wait(self, n):
        self.event.wait()
        return n

    def open(self):
        self.event.set()


@ray.remote(num_cpus=0.5)
def digits(n):
    return sum(int(digit) for digit in str(3**n))


@ray.remote(num_cpus=0.1)
class Counter:
    def __init__(self):
        self.value = 0

    def add(self, n):
        self.value += n
        return self.value


def main():
    counter, pending, most = Counter.remote(), [], 0
    for _ in range(1_000):
        if len(pending) == 50:
            done, pending = ray.wait(pending, num_returns=25)
            most = max(most, *ray.get(done))
        pending.append(counter.add.remote(1))
    print("app:", max(ray.get(pending)), most <= 1_000)
    pending, total = [], 0
    for n in range(100):
        if len(pending) == 4:
            (ready,), pending = ray.wait(pending, num_returns=1)
            total += ray.get(ready)
        pending.append(digits.remote(n))
    print("app:", total + sum(ray.get(pending)))
    for wrong in ([], [1]):
        try:
            ray.wait(wrong, num_returns=1)
        except (TypeError, ValueError) as error:
            print("app:", type(error).__name__)
    gate = Gate.options(max_pending_calls=3).remote()
    waiting = [gate.wait.remote(0)]
    try:
        while len(waiting) < 100:
            waiting.append(gate.wait.remote(len(waiting)))
    except ray.exceptions.PendingCallsLimitExceeded as error:
        print("app:", type(error).__name__, len(waiting))
    try:
        ray.get(waiting[0], timeout=0.2)
    except ray.exceptions.GetTimeoutError as error:
        print("app:", type(error).__name__, isinstance(error, TimeoutError))
    print("app:", len(ray.wait(waiting, num_returns=2, timeout=0.1)[0]))
    opened = Gate.remote()
    first = opened.wait.remote("first")
    ray.get(opened.open.remote())
    print("app:", ray.get(first), ray.get(opened.wait.remote("open")))


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main()
    print("app:", "the end")
