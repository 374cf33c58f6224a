"""A driver that is a coroutine: it awaits refs, gathers them, takes them as they come, and waits with a timeout."""

import asyncio
import concurrent.futures

import ray


@ray.remote(num_cpus=0.1)
def square(n):
    return n * n


@ray.remote(num_cpus=0.1)
class Account:
    def __init__(self):
        self.balance = 0

    async def deposit(self, n):
        await asyncio.sleep(0)
        self.balance += n
        return self.balance

    async def never(self):
        await asyncio.Event().wait()

    async def fails(self):
        raise ValueError("as told")


async def main():
    accounts = [Account.remote() for _ in range(3)]
    print("app:", await square.remote(5), await asyncio.gather(*[square.remote(n) for n in range(10)]))
    for _ in range(100):
        await asyncio.gather(*[account.deposit.remote(1) for account in accounts])
    print("app:", [await account.deposit.remote(0) for account in accounts])
    found = [await one for one in asyncio.as_completed([square.remote(n) for n in range(5)])]
    print("app:", sorted(found))
    try:
        await asyncio.wait_for(accounts[0].never.remote(), timeout=0.2)
    except TimeoutError as error:
        print("app:", type(error).__name__)
    try:
        await accounts[1].fails.remote()
    except ValueError as error:
        print("app:", type(error).__name__)
    done, pending = await asyncio.wait(
        [asyncio.wrap_future(square.remote(2).future()), asyncio.ensure_future(asyncio.Event().wait())],
        return_when=asyncio.FIRST_COMPLETED,
    )
    print("app:", [one.result() for one in done], len(pending))
    for one in pending:
        one.cancel()
    mixed = await asyncio.gather(square.remote(3), accounts[1].fails.remote(), return_exceptions=True)
    print("app:", mixed[0], type(mixed[1]).__name__)
    futures = [square.remote(n).future() for n in range(4)]
    print("app:", sorted(one.result() for one in concurrent.futures.as_completed(futures, timeout=60)))


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    asyncio.run(main())
    print("app:", "the end")
