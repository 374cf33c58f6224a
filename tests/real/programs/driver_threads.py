"""A driver with threads of its own: a pool that calls actors, a thread in the background, and Ray started twice."""

import threading
from concurrent.futures import ThreadPoolExecutor

import ray


@ray.remote(num_cpus=0.1)
class Account:
    def __init__(self, balance):
        self.balance = balance

    def add(self, n):
        self.balance += n
        return self.balance


@ray.remote(num_cpus=0.1)
def square(n):
    return n * n


def in_a_thread(account, n):
    return ray.get(account.add.remote(ray.get(square.remote(n)))) > 0, threading.current_thread().name[:4]


def main():
    accounts = [Account.remote(1) for _ in range(3)]
    with ThreadPoolExecutor(4, thread_name_prefix="pool") as pool:
        found = list(pool.map(lambda n: in_a_thread(accounts[n % 3], n), range(60)))
    print("app:", len(found), set(found), ray.get([account.add.remote(0) for account in accounts]))
    told = []
    background = threading.Thread(target=lambda: told.append(ray.get(square.remote(12))), name="background")
    background.start()
    background.join()
    print("app:", told, threading.current_thread().name)


if __name__ == "__main__":
    for _ in range(2):
        ray.init(num_cpus=4, log_to_driver=False)
        main()
        ray.shutdown()
    print("app:", "the end")
