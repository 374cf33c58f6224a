"""A program that a signal ends: what it says of SIGTERM, and when, is its first argument."""

import asyncio
import os
import signal
import sys
import threading

import ray


class Actor:
    def block(self) -> None:
        threading.Event().wait()

    def answer(self) -> int:
        return 1


def handle(*_: object) -> None:
    os.write(1, b"handled\n")  # print may be what was interrupted
    sys.exit(7)


def started() -> None:
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    actor = ray.remote(Actor).remote()
    ray.get(actor.answer.remote())
    pending = actor.block.remote()
    if how == "after":
        signal.signal(signal.SIGTERM, handle)
    print("ready", flush=True)
    if how in ("before", "after"):
        threading.Event().wait()  # inside ray.get, Ray makes any code of a handler's sys.exit a 1
    ray.get(pending)


async def on_a_loop() -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    print("ready", flush=True)
    await ended.wait()
    print("handled", flush=True)
    sys.exit(7)


how = sys.argv[1]
if how == "before":
    signal.signal(signal.SIGTERM, handle)
if how == "threads":
    threading.Thread(target=threading.Event().wait, daemon=False).start()
if how == "loop":
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    ray.get(ray.remote(Actor).remote().answer.remote())  # takes as long as a snapshot or two
    asyncio.run(on_a_loop())
if how == "second":
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    ray.shutdown()
started()
