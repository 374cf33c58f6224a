"""Tasks that start tasks: a merge sort and a tree of sums, with refs passed on unread."""

import random

import ray


@ray.remote(num_cpus=0.1)
def sort(numbers):
    if len(numbers) <= 5_000:
        return sorted(numbers)
    middle = len(numbers) // 2
    return ray.get(merge.remote(sort.remote(numbers[:middle]), sort.remote(numbers[middle:])))


@ray.remote(num_cpus=0.1)
def merge(left, right):
    merged, place = [], 0
    for item in left:
        while place < len(right) and right[place] < item:
            merged.append(right[place])
            place += 1
        merged.append(item)
    return merged + right[place:]


@ray.remote(num_cpus=0.1)
def total(depth):
    if depth == 0:
        return 1
    return sum(ray.get([total.remote(depth - 1) for _ in range(2)]))


@ray.remote(num_cpus=0.1)
def starts(depth):
    return [total.remote(depth)]  # the ref of a task that may still run


def main():
    numbers = [random.Random(1).randrange(10**9) for _ in range(40_000)]
    print("app:", ray.get(sort.remote(numbers)) == sorted(numbers))
    print("app:", ray.get(total.remote(3)), ray.get(ray.get(starts.remote(2))[0]))


if __name__ == "__main__":
    ray.init(num_cpus=8, log_to_driver=False)
    main()
    print("app:", "the end")
