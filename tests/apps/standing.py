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

    async def called(self):
        self.listening.set()
        await self.come.wait()
        return "called"

    async def open(self):
        self.come.set()
        return "opened"

    async def hello(self):
        return "hello"


def call_from_outside():
    desk = ray.get_actor("the_desk", namespace="standing")
    called = desk.called.remote()
    ray.get(desk.listens.remote())
    print("calling", flush=True)
    print(ray.get(called))


def main(how, *arguments):
    named = {"name": "the_desk", "namespace": "standing"} if how == "named" else {}
    desk = Desk.options(**named).remote()
    print(ray.get(desk.hello.remote()), flush=True)
    if how == "idle":
        sys.stdin.readline()
        print(ray.get(desk.hello.remote()))
    if how == "named":
        sys.stdin.readline()
        print(ray.get(desk.open.remote()), flush=True)
        sys.stdin.readline()
    if how == "outside":
        waiting = desk.wait_for.remote(*arguments)
        print(ray.get(desk.listens.remote()), flush=True)
        print(ray.get(waiting))


if __name__ == "__main__":
    ray.init()
    call_from_outside() if sys.argv[1] == "caller" else main(*sys.argv[1:])
