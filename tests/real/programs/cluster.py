"""A program on a cluster that `ray start` has made: it reads what is there, works, and leaves it as it was."""

import ray


@ray.remote(num_cpus=1)
class Account:
    def __init__(self, balance):
        self.balance = balance

    def transfer(self, to, n):
        self.balance -= n
        return ray.get(to.deposit.remote(n))

    def deposit(self, n):
        self.balance += n
        return self.balance


@ray.remote(num_cpus=1)
def total(numbers):
    return sum(numbers)


def main():
    print("app:", ray.cluster_resources()["CPU"], len(ray.nodes()), len(ray.get_runtime_context().namespace) > 0)
    accounts = [Account.remote(100) for _ in range(2)]
    print("app:", [ray.get(accounts[0].transfer.remote(accounts[1], n)) for n in range(100)][-1])
    print("app:", ray.get([total.remote(list(range(n))) for n in (10, 100, 1_000)]))


if __name__ == "__main__":
    ray.init(log_to_driver=False)  # RAY_ADDRESS says where
    main()
    print("app:", "the end")
