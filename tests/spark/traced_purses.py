"""Machines of traced runs that are made by hand, and what is asked of these runs."""

import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import ray_snapshot as rs
from ray_snapshot import detectors

BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Purse(rs.SnapshotMixin):
    """Holds coins."""

    def __init__(self, coins: int) -> None:
        self.coins = coins

    def take(self, coins: int) -> None:
        self.coins += coins

    def age(self) -> None:
        self.coins += int(self.now())


def rich(purse: Any) -> bool:
    return bool(purse.coins > 10)


EACH = {"a": rich, "b": rich}
"""Both at once; each asked by itself."""


def both_rich(states: Mapping[str, Any]) -> bool:
    return len(states) == 2 and all(map(rich, states.values()))


def never(states: Mapping[str, Any]) -> bool:
    return False


def broken(states: Mapping[str, Any]) -> bool:
    return bool(states["nobody"])


def leaving(states: Mapping[str, Any]) -> bool:
    sys.exit("it leaves")


class Quiet(detectors.Termination):
    """A detector by its class."""


def trace(run: str, **gifts: list[tuple[str, int]]) -> list[dict[str, Any]]:
    """Rows of `actions`: purses of 10 coins, each sent these messages by the driver, one purse after the other."""
    rows: list[dict[str, Any]] = []
    counts: dict[str, int] = {}

    def act(machine: str, method: str, accepted: list[Any], sent: list[Any]) -> None:
        counts[machine] = number = counts.get(machine, 0) + 1
        rows.append(
            {"run_id": run, "machine": machine, "number": number, "host": "host-0", "method": method,
             "accepted": json.dumps(accepted), "sent": json.dumps(sent), "colour": 0,
             "acted_at": BEGIN + timedelta(milliseconds=len(rows)), "is_over": True}
        )  # fmt: skip

    def message(number: int, method: str, *args: Any) -> dict[str, Any]:
        return {"kind": "mail", "number": number, "method": method, "args": [*args]}

    for name in gifts:
        made = {**message(0, "__init__", 10), "class": "traced_purses:Purse"}
        act("driver", "send", [], [{"target": name, **made}])
        act(name, "__init__", [{"source": "driver", **made}], [])
    for name, given in gifts.items():
        for number, (method, coins) in enumerate(given, 1):
            sent = message(number, method, *([coins] if method == "take" else []))
            act("driver", "send", [], [{"target": name, **sent}])
            act(name, method, [{"source": "driver", **sent}], [])
    return rows
