"""Programs that stand still until they are told to go on, by a line on stdin or in a named pipe."""

import asyncio
import sys
import threading

import ray


@ray.remote
class Desk:
    def __init__(self):
        self.come = asyncio.Event()
        self.listening = asyncio.Event()

    async def wait_for(self, path):
        loop = asyncio.get_running_loop()
        threading.Thread(target=self.listen, args=(loop, path), name="listener", daemon=True).start()
        await self.come.wait()
        return "somebody came"

    def listen(self, loop, path):
        with open(path) as pipe:
            loop.call_soon_threadsafe(self.listening.set)
            pipe.read()
        loop.call_soon_threadsafe(self.come.set)

    async def listens(self):
        await self.listening.wait()
        return "listening"

    async def hello(self):
        return "hello"


def main(how, *arguments):
    desk = Desk.remote()
    print(ray.get(desk.hello.remote()), flush=True)
    if how == "idle":
        sys.stdin.readline()
        print(ray.get(desk.hello.remote()))
    if how == "outside":
        waiting = desk.wait_for.remote(*arguments)
        print(ray.get(desk.listens.remote()), flush=True)
        print(ray.get(waiting))


if __name__ == "__main__":
    ray.init()
    main(*sys.argv[1:])
