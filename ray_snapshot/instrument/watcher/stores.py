"""Object stores that are short of room, and who owns what is in them: the `stores` of a snapshot's coverage.

A hint for people (`detectors.stores` puts it into words): Ray told it a while before, it is not of the cut, and no verdict
rests on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ray_snapshot.protocol.call_collector import CompletedCallSnapshot
from ray_snapshot.protocol.demands import Store

if TYPE_CHECKING:
    from ray_snapshot.instrument.watcher.joined import Tables


def short_stores(completed: CompletedCallSnapshot) -> dict[str, Store]:
    """By node; of what several processes were told of one, the latest."""
    found: dict[str, Store] = {}
    for report in completed.machines.values():
        held = report.held
        if held is not None and held.stored.store is not None:
            store = held.stored.store
            if held.node not in found or found[held.node].told_at < store.told_at:
                found[held.node] = store
    return {node: store for node, store in found.items() if store.is_short}


def stores(tables: Tables) -> list[dict[str, Any]]:
    """The item of the coverage: a row for each node of which the store is short of room."""
    # One for each process, for a worker's is also that of the task that it runs, which comes behind it.
    of_process = {id(one.held): (name, one.held) for name, one in tables.completed.machines.items()}
    holders = [(tables.shown(name), held.stored) for name, held in of_process.values() if held is not None]
    return [
        {
            "node": node,
            "capacity": store.capacity,
            "in_use": store.in_use,
            "spilled": store.spilled,
            "arguments": store.arguments,
            "waiting": store.waiting,
            "told_at": store.told_at,
            "owners": [
                {"machine": name, **stored.owned[node]._asdict()} for name, stored in holders if node in stored.owned
            ],
            "not_looked_at": sum(stored.not_looked_at for _, stored in holders),
        }
        for node, store in short_stores(tables.completed).items()
    ]
