"""ray.cancel: of tasks that run, that wait in line and that wait for others; of an async actor's call; and what they raise."""

import asyncio
import time

import ray


@ray.remote(num_cpus=0)
class Started:
    def __init__(self):
        self.names, self.event = set(), asyncio.Event()

    async def note(self, name):
        self.names.add(name)
        self.event.set()

    async def wait(self, name):
        while name not in self.names:
            self.event.clear()
            await self.event.wait()


@ray.remote(num_cpus=1)
def long(started, name):
    ray.get(started.note.remote(name))
    while True:
        time.sleep(0.01)


@ray.remote(num_cpus=0)
def parent(started):
    return ray.get(long.remote(started, "child"))


@ray.remote(num_cpus=0)
class Patient:
    async def wait(self, started, name):
        await started.note.remote(name)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await started.note.remote(f"{name} cancelled")
            raise

    async def still(self):
        return "still here"


def outcome(ref):
    try:
        return ray.get(ref, timeout=60)
    except Exception as error:
        return type(error).__name__


def main():
    started = Started.remote()
    running = long.options(num_cpus=2).remote(started, "running")
    ray.get(started.wait.remote("running"))
    waiting = long.options(num_cpus=2).remote(started, "waiting")
    ray.cancel(waiting)
    print("app:", outcome(waiting))
    ray.cancel(running)
    print("app:", outcome(running))
    forced = long.remote(started, "forced")
    ray.get(started.wait.remote("forced"))
    ray.cancel(forced, force=True)
    print("app:", outcome(forced) in ("WorkerCrashedError", "TaskCancelledError"))
    above = parent.remote(started)
    ray.get(started.wait.remote("child"))
    ray.cancel(above, recursive=True)
    print("app:", outcome(above) in ("TaskCancelledError", "RayTaskError(TaskCancelledError)"))
    patient = Patient.remote()
    call = patient.wait.remote(started, "call")
    ray.get(started.wait.remote("call"))
    ray.cancel(call)
    print("app:", outcome(call), outcome(started.wait.remote("call cancelled")), ray.get(patient.still.remote()))
    done = patient.still.remote()
    ray.get(done)
    ray.cancel(done)
    print("app:", ray.get(done))


if __name__ == "__main__":
    ray.init(num_cpus=2, log_to_driver=False)
    main()
    print("app:", "the end")
