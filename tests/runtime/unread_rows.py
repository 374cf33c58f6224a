"""Rows of machines at rest, snapshots that have not read them yet, and detectors to ask."""

import operator
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

import ray_snapshot as rs
from ray_snapshot import Snapshot, detectors
from ray_snapshot.columns import inner
from ray_snapshot.parts.reporting import LinkCounts
from ray_snapshot.protocol.joins import Inputs
from ray_snapshot.runtime.host.resting import Rows
from ray_snapshot.runtime.report import Resting
from ray_snapshot.schema import MACHINES
from ray_snapshot.snapshot import Absent

COLUMNS = inner(MACHINES)


@rs.detector(partial=lambda part: len(part.machines), merge=operator.add, stable=False)
def few(count: int) -> Any:
    return count <= 3, {"count": count}


ASKED = [
    detectors.Termination(),
    detectors.Termination(machines=["m*"]),
    detectors.Deadlock(),
    detectors.TokenConservation(total=10, messages={"pay": "$[0]"}),
    detectors.TokenConservation(state={"Purse": "$.tokens"}, messages={"pay": "$[0]"}),
    detectors.UniqueToken(state="$.tokens"),
    detectors.Reached("$.tokens", 1),
    detectors.Reached("$.tokens", 1, machines=["m1", "m9", "m*", "x*"]),
    few,
]
CLASSES = st.sampled_from(["Purse", "Vault"])


def resting(count: int, *, status: str = "passive", inputs: dict[str, Inputs] | None = None) -> Resting:
    rows = [
        {"machine": f"m{at}", "class_name": "Purse", "host": "h", "status": status, "state": "{}", "state_bytes": 2}
        for at in range(count)
    ]
    table = pa.Table.from_pylist(rows, schema=COLUMNS)
    return Resting(Rows(table), pa.table({}), LinkCounts("h"), inputs or {}, ())


class Elsewhere:
    """Rows that a snapshot reads when it is asked for them, of several hosts."""

    def __init__(self, rows: pa.Table, parts: Sequence[pa.Table]) -> None:
        self.rows = rows
        self.parts = parts
        self.asked: list[Any] = []

    def partials(self, item: Any, snapshot: Snapshot) -> list[Any]:
        self.asked.append(item.name)
        header = Snapshot({"snapshots": snapshot.tables["snapshots"]})
        return [item.partial(header.with_machines(part)) for part in self.parts]

    def fetch(self, names: Sequence[str] | None) -> pa.Table:
        self.asked.append(names)
        if names is None:
            return self.rows
        return self.rows.filter(pa.array([name in names for name in self.rows["machine"].to_pylist()], pa.bool_()))


def without(whole: Snapshot, absent: Sequence[str], cuts: Sequence[int] = ()) -> tuple[Snapshot, Elsewhere]:
    """The same, but that rows of these machines are elsewhere, in the order given; `cuts`: where they are parted."""
    table = whole.tables["machines"]
    is_absent = pa.array([name in absent for name in table["machine"].to_pylist()], pa.bool_())
    away = table.filter(is_absent)
    ordered = away.take([away["machine"].to_pylist().index(name) for name in absent]) if absent else away
    ends = [0, *sorted(min(cut, len(absent)) for cut in cuts), len(absent)]
    parts = [ordered[first:last] for first, last in pairwise(ends)]
    elsewhere = Elsewhere(away, parts)
    classes: dict[str, int] = {}
    for name in away["class_name"].to_pylist():
        classes[name] = classes.get(name, 0) + 1
    size = sum(value or 0 for value in away["state_bytes"].to_pylist())
    said = Absent(classes, {"": away.num_rows}, {"": 0.0}, size, elsewhere.fetch, elsewhere.partials)
    here = {**whole.tables, "machines": table.filter(pa.array([not one for one in is_absent.to_pylist()], pa.bool_()))}
    return Snapshot(here, said), elsewhere


@st.composite
def snapshots(draw: st.DrawFn) -> tuple[Snapshot, list[str], list[int]]:
    """A snapshot, which of its passive machines are elsewhere, and where these are parted."""
    names = [f"m{at}" for at in range(draw(st.integers(1, 6)))]
    machines = []
    for name in sorted(names):
        row: dict[str, Any] = {
            "machine": name,
            "class_name": draw(CLASSES),
            "state": {"tokens": draw(st.integers(0, 4))},
        }
        status = draw(st.sampled_from(["passive"] * 4 + ["active", "blocked", "stopped"]))
        if status == "blocked":
            row |= {"waits_for": [draw(st.sampled_from(names))], "wait_mode": "all"}
        machines.append({**row, "status": status})
    pairs = draw(st.lists(st.tuples(st.sampled_from(names), st.sampled_from(names), st.integers(0, 4)), max_size=3))
    messages = [{"source": a, "target": b, "method": "pay", "args": [n]} for a, b, n in pairs]
    whole = Snapshot.from_rows(machines=machines, messages=messages, coverage={"hosts": 1, "uncovered": []})
    passive = [row["machine"] for row in machines if row["status"] == "passive"]
    absent = draw(st.permutations([name for name in passive if draw(st.booleans())]))
    return whole, absent, draw(st.lists(st.integers(0, len(absent)), max_size=3))
