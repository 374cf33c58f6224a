"""Processes that end in each way, one after the other; each writes down what the app's own code sees of its end.

While Ray takes an actor down, our thread in it is given more to send, again and again. Ray's patience with an actor that has
been dropped is no part of what is looked at: a busy machine may need longer.
"""

import atexit
import os
import sys
import threading
import time
from pathlib import Path

import ray

sys.path.append(str(Path(__file__).parents[1]))

from until import until

NOTES = Path(sys.argv[1])


def note(name: str, what: str) -> None:
    with (NOTES / name).open("a") as file:
        file.write(f"{what}\n")


def keep_sending() -> None:
    """Give our thread acknowledgements to send, as long as this process lives."""
    from ray_snapshot.instrument.here import attached

    control = attached()[0].control

    def send() -> None:
        while True:
            control.tell("acknowledge", [])
            time.sleep(0.0002)

    threading.Thread(target=send, daemon=True).start()


class Noting:
    def begin(self, name: str) -> int:
        self.name = name
        atexit.register(note, name, "atexit")
        return os.getpid()

    def __ray_shutdown__(self) -> None:
        note(self.name, "shutdown")
        keep_sending()

    def __del__(self) -> None:
        note(self.name, "del")


@ray.remote(num_cpus=0)
class Plain(Noting):
    def leave(self) -> None:
        ray.actor.exit_actor()

    def exit(self) -> None:
        sys.exit(0)


@ray.remote(num_cpus=0)
class OnLoop(Noting):
    async def wait(self) -> None:
        """Make it an actor with an event loop."""


@ray.remote(num_cpus=0, max_calls=1)
def last_task(name: str) -> int:
    atexit.register(note, name, "atexit")
    return os.getpid()


def main() -> None:
    ray.init(
        _system_config=dict.fromkeys(("actor_graceful_shutdown_timeout_ms", "kill_worker_timeout_milliseconds"), 60_000)
    )
    actors = {
        "dropped": Plain.remote(),
        "dropped-loop": OnLoop.remote(),
        "dropped-threads": Plain.options(max_concurrency=3).remote(),
        "left": Plain.remote(),
        "exited": Plain.remote(),
    }
    pids = ray.get([actor.begin.remote(name) for name, actor in actors.items()])
    actors["left"].leave.remote()
    actors["exited"].exit.remote()
    actors.clear()
    pids.append(ray.get(last_task.remote("max-calls")))
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), seconds=120.0)
    print("all are gone")


if __name__ == "__main__":
    main()
