"""No more than a few tasks in flight: ray.wait before each new one, as Ray's documentation advises."""

import ray

MOST = 4


@ray.remote(num_cpus=0.5)
def digits(n):
    return n, sum(int(digit) for digit in str(3**n))


def main():
    pending, results, most = [], {}, 0
    for n in range(300):
        if len(pending) >= MOST:
            ready, pending = ray.wait(pending, num_returns=1)
            results.update(ray.get(ready))
        pending.append(digits.remote(n))
        most = max(most, len(pending))
    results.update(ray.get(pending))
    print("app:", most, len(results), sum(results.values()), results[299])
    done, rest = ray.wait([digits.remote(n) for n in range(5)], num_returns=5)
    print("app:", [ray.get(one)[0] for one in done], rest)
    for wrong in ([], [1]):
        try:
            ray.wait(wrong, num_returns=1)
            print("app:", "nothing raised")
        except (TypeError, ValueError) as error:
            print("app:", type(error).__name__)


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main()
    print("app:", "the end")
