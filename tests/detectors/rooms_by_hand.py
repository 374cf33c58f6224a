"""What an app by hand tells of nodes: what they have, who holds it, what needs it, and groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from calls_by_hand import App


@dataclass(frozen=True)
class Room:
    """What the coverage of an app by hand tells of resources."""

    app: App

    def __post_init__(self) -> None:
        empty: dict[str, Any] = {"demands": [], "nodes": {}, "groups": [], "holders": [], "unsure": []}
        self.told.update({**empty, **self.told})

    @property
    def told(self) -> dict[str, Any]:
        found: dict[str, Any] = self.app.coverage.setdefault("resources", {})
        return found

    def node(self, name: str, **amounts: float) -> Room:
        self.told["nodes"][name] = amounts
        return self

    def holds(self, machine: str, node: str, by: list[str] | None = None, *, checked: bool = True, **held: Any) -> Room:
        row = {"machine": machine, "node": node, "amounts": held, "by": by, "checked": checked}
        self.told["holders"].append({**row, "task": "-" not in machine or machine.startswith("task")})
        return self

    def demands(self, source: str | None, target: str, numbers: Any = None, **more: Any) -> Room:
        row = {"source": source, "target": target, "numbers": numbers, "since": 10.0, "needs": {}}
        self.told["demands"].append({**row, "group": None, "bundle": -1, "nodes": None, **more})
        return self

    def group(self, key: str, *bundles: dict[str, float], on: str = "", **more: Any) -> Room:
        row = {"group": key, "name": "", "created": bool(on), "bundles": list(bundles), "nodes": [on] * len(bundles)}
        self.told["groups"].append({**row, "strategy": "PACK", "owners": [], **more})
        return self


def last_cpu(*, cpus: float = 4, **held: float) -> tuple[App, Room]:
    """Trainer-0, called by the driver, waits for a task that needs a CPU."""
    app = App().actor("driver").actor("Trainer-0")
    go = app.runs("Trainer-0", "driver", "go", "app.py:12")
    app.waits_for("driver", go)
    task = app.queues("prepare()", "Trainer-0", "prepare", number=1)
    app.waits_for(go, task)
    room = Room(app).node("n1", CPU=cpus).demands("Trainer-0", "prepare()", [[1, 1]], needs={"CPU": 1})
    return app, room.holds("Trainer-0", "n1", ["driver"], **(held or {"CPU": 4}))


def two_groups() -> tuple[App, Room]:
    """Two owners, each with a group that was made, wait for another."""
    app, room = App(), None
    for name in ("Owner-0", "Owner-1"):
        app.actor(name)
        take = app.runs(name, "driver", "take")
        app.waits_for(take, app.queues("ready()", name, "ready", number=1))
        room = room or Room(app).node("n1", CPU=2)
        room.group(f"made-{name}", {"CPU": 1}, on="n1", owners=[name])
        room.group(f"wanted-{name}", {"CPU": 1}, owners=[name])
        room.demands(name, "ready()", [[1, 1]], group=f"wanted-{name}")
    assert room is not None
    return app, room


def wait_row(machine: str, call_id: str, on: str, k: int) -> dict[str, Any]:
    row = {"machine": machine, "call_id": call_id, "k": k, "on_machine": on.split("/")[2], "on_call_id": on}
    return {**row, "satisfied": False, "alternative": 0}
