"""What a snapshot's coverage tells of resources, read: demands, nodes, placement groups, and who holds what.

`instrument.watcher.resources` writes it. A history may be a stranger's, and this decides verdicts: so the form is declared here
once, and what differs is refused with its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, NotRequired

import numpy as np
import pyarrow as pa
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from ray_snapshot.detectors.common import Integers, integers, is_any_of, texts
from ray_snapshot.errors import DetectorError
from ray_snapshot.names import listed
from ray_snapshot.snapshot import Snapshot

UNIT = 10_000
"""Ray counts resources in ten-thousandths."""

Amounts = Mapping[str, int]
"""By resource, in `UNIT`s."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What some calls need on one node; calls that need the same have one demand."""

    needs: tuple[tuple[str, int], ...]
    group: str | None
    bundle: int
    nodes: frozenset[str] | None
    """Where it may be met; None: anywhere."""

    @property
    def text(self) -> str:
        """ "CPU 1", for people."""
        text = shown(dict(self.needs))
        place = "" if self.group is None else f"placement group {self.group[:8]}"
        return f"{text} in {place}" if text and place else text or place


@dataclass(frozen=True, slots=True)
class Asked:
    """Calls on one channel that have the same demand."""

    source: str | None
    """None: all that is sent to `target`, which is not born yet."""
    target: str
    numbers: tuple[tuple[int, int], ...]
    since: float
    """When the first of them was sent."""
    demand: int
    """Index of theirs."""


@dataclass(frozen=True, slots=True)
class Group:
    """A placement group."""

    name: str
    is_created: bool
    bundles: tuple[Amounts, ...]
    nodes: tuple[str, ...]
    strategy: str
    owners: tuple[str, ...]
    """Machines that have made it."""
    is_public: bool
    """Whether it has a name, by which others may find it."""

    @property
    def whole(self) -> dict[str, int]:
        """Its bundles together."""
        return added(self.bundles)

    @property
    def text(self) -> str:
        """ "placement group 5bed1956 of Owner-1", or "placement group spare" of one that has a name."""
        owner = f" of {listed(self.owners)}" if self.owners and not self.is_public else ""
        return f"placement group {self.name}{owner}"


@dataclass(frozen=True, slots=True)
class Holder:
    """A machine that has a part of its node."""

    machine: str
    node: str
    amounts: Amounts
    is_task: bool
    by: tuple[str, ...] | None
    """Machines, and calls that have not begun, that may call it or drop its handle; None: anything may."""
    devices: Mapping[str, tuple[tuple[int, int], ...]]
    """By resource that comes in whole devices: which ones, and how much of each."""
    is_checked: bool
    """Whether those have a handle of it for certain, and nothing else may have one: none lies in garbage, none is elsewhere."""
    is_outside: bool = False
    """Whether it is not watched."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a snapshot tells of resources."""

    demands: tuple[Demand, ...] = ()
    asked: tuple[Asked, ...] = ()
    nodes: Mapping[str, Amounts] = field(default_factory=dict)
    groups: Mapping[str, Group] = field(default_factory=dict)
    holders: tuple[Holder, ...] = ()
    unsure: tuple[str, ...] = ()
    """Why room may come all the same."""
    outside_stays: bool = False
    """Whether what is not watched keeps what it holds (`outside_room`); else it holds nothing."""
    classes: Mapping[str, str] = field(default_factory=dict)
    """By machine that holds something: its class; "" of a plain task."""


_STRICT = ConfigDict(strict=True, extra="ignore")
_Amount = Annotated[float, Field(ge=0, le=1e14, allow_inf_nan=False)]
_Number = Annotated[int, Field(ge=0, lt=2**62)]
_Range = Annotated[list[_Number], Field(min_length=2, max_length=2)]


_Part = Annotated[list[_Amount], Field(min_length=2, max_length=2)]


class _DemandRow(TypedDict):
    __pydantic_config__ = _STRICT  # type: ignore[misc]
    source: str | None
    target: str
    numbers: list[_Range] | None
    needs: dict[str, _Amount]
    group: str | None
    bundle: Annotated[int, Field(ge=-1)]
    nodes: list[str] | None
    since: Annotated[float, Field(allow_inf_nan=False)]


class _GroupRow(TypedDict):
    __pydantic_config__ = _STRICT  # type: ignore[misc]
    group: str
    name: str
    created: bool
    bundles: list[dict[str, _Amount]]
    nodes: list[str]
    strategy: str
    owners: list[str]


class _HolderRow(TypedDict):
    __pydantic_config__ = _STRICT  # type: ignore[misc]
    machine: str
    node: str
    amounts: dict[str, _Amount]
    task: bool
    keeps_cpu: NotRequired[bool]
    devices: NotRequired[dict[str, list[_Part]]]
    by: list[str] | None
    checked: bool


class _OutsideRow(TypedDict):
    """An actor that is not watched, or all that else runs of other programs: `job` names them, and the rest is missing."""

    __pydantic_config__ = _STRICT  # type: ignore[misc]
    job: str
    node: str
    amounts: dict[str, _Amount]
    name: NotRequired[str]
    kind: NotRequired[str]
    key: NotRequired[str]
    namespace: NotRequired[str]
    detached: NotRequired[bool]


class _Rows(TypedDict):
    __pydantic_config__ = _STRICT  # type: ignore[misc]
    demands: list[_DemandRow]
    nodes: dict[str, dict[str, _Amount]]
    groups: list[_GroupRow]
    holders: list[_HolderRow]
    outside: NotRequired[list[_OutsideRow]]
    outside_stays: NotRequired[bool]
    unsure: list[str]


_SHAPE = TypeAdapter(_Rows)


def told(snapshot: Snapshot, *, is_of_now: bool = False) -> Told:
    """Read the coverage; raises `DetectorError` if its form is not known.

    `is_of_now`: the CPUs of plain tasks that compute count, too, though they will give them back.
    """
    found = snapshot.coverage.get("resources")
    if found is None or found == {}:
        return Told()
    try:
        rows = _SHAPE.validate_python(found)
    except ValidationError as error:
        first = error.errors()[0]
        raise _refused(snapshot, ".".join(map(str, first["loc"])), first["msg"]) from None
    for place, group in enumerate(rows["groups"]):
        if len(group["nodes"]) != len(group["bundles"]):
            raise _refused(snapshot, f"groups.{place}.nodes", "there must be one for each bundle")
    computing = _computing(snapshot) if is_of_now else frozenset[str]()
    demands = {_demand(row): None for row in rows["demands"]}
    index = {one: place for place, one in enumerate(demands)}
    return Told(
        tuple(demands),
        tuple(_asked(row, index[_demand(row)]) for row in rows["demands"]),
        {name: _units(amounts) for name, amounts in rows["nodes"].items()},
        {row["group"]: _group(row) for row in rows["groups"]},
        (
            *(_holder(row, computes=row["machine"] in computing) for row in rows["holders"]),
            *(
                Holder(outsider(one), one["node"], _units(one["amounts"]), False, (), {}, True, is_outside=True)
                for one in rows.get("outside", ())
            ),
        ),
        tuple(rows["unsure"]),
        rows.get("outside_stays", False),
        _classes(snapshot, [row["machine"] for row in rows["holders"]]),
    )


def _classes(snapshot: Snapshot, names: list[str]) -> dict[str, str]:
    machines = snapshot.tables["machines"].select(["machine", "class_name"])
    found = machines.filter(pa.array(is_any_of(machines["machine"], *names)))
    return dict(zip(*(column.to_pylist() for column in found.columns), strict=True))


def _refused(snapshot: Snapshot, place: str, reason: str) -> DetectorError:
    where = f"coverage.resources.{place}".rstrip(".")
    text = f"snapshot {snapshot.snapshot_id}: {where}: {reason}: this ray-snapshot has not written it"
    return DetectorError(text, detector="deadlock")


def _computing(snapshot: Snapshot) -> frozenset[str]:
    machines = snapshot.tables["machines"]
    active = pa.array(is_any_of(machines["status"], "active"))
    return frozenset(texts(machines["machine"]).filter(active).to_pylist())


def _units(amounts: Mapping[str, float]) -> dict[str, int]:
    return {name: round(amount * UNIT) for name, amount in amounts.items()}


def _demand(row: _DemandRow) -> Demand:
    nodes = None if row["nodes"] is None else frozenset(row["nodes"])
    return Demand(tuple(_units(row["needs"]).items()), row["group"], row["bundle"], nodes)


def _asked(row: _DemandRow, demand: int) -> Asked:
    numbers = [(0, 2**62)] if row["numbers"] is None else [(first, last) for first, last in row["numbers"]]
    return Asked(row["source"], row["target"], tuple(numbers), row["since"], demand)


def _group(row: _GroupRow) -> Group:
    return Group(
        row["name"] or row["group"][:8],
        row["created"],
        tuple(_units(one) for one in row["bundles"]),
        tuple(row["nodes"]),
        row["strategy"],
        tuple(row["owners"]),
        bool(row["name"]),
    )


def _holder(row: _HolderRow, *, computes: bool) -> Holder:
    amounts, by = _units(row["amounts"]), row["by"]
    if row["task"] and not computes and not row.get("keeps_cpu", False):
        amounts = {name: amount for name, amount in amounts.items() if not _is_cpu(name)}
    devices = {
        name: tuple((int(number), round(amount * UNIT)) for number, amount in parts)
        for name, parts in row.get("devices", {}).items()
    }
    known = None if by is None else tuple(by)
    return Holder(row["machine"], row["node"], amounts, row["task"], known, devices, row["checked"])


def outsider(row: Mapping[str, Any]) -> str:
    """What is not watched, for people: "cache-0 (a detached Cache of job 02000000)", "job 03000000"."""
    job, kind, name = f"job {row['job']}", row.get("kind"), row.get("name")
    if not kind:
        return job
    what = f"a detached {kind} of {job}" if row.get("detached") else f"{kind} of {job}"
    return f"{name or kind + ' ' + row.get('key', '')[:8]} ({what})"


def _is_cpu(name: str) -> bool:
    return name == "CPU" or name.startswith("CPU_group_")


def demand_of_rows(found: Told, rows: Any) -> Integers:
    """Which demand each of `rows` (of `messages`) has; -1: none."""
    demand = np.full(rows.num_rows, -1, np.int64)
    if not found.asked:
        return demand
    asked: dict[str, list[Asked]] = {}
    for one in found.asked:
        asked.setdefault(one.target, []).append(one)
    at = np.flatnonzero(is_any_of(rows["target"], *asked))
    some = rows.select(["source", "target"]).take(at)
    numbers = integers(rows["number"], -1)[at].tolist()
    whole = zip(at.tolist(), some["source"].to_pylist(), some["target"].to_pylist(), numbers, strict=True)
    for row, source, target, number in whole:
        for one in asked[target]:
            if one.source in (None, source) and any(first <= number <= last for first, last in one.numbers):
                demand[row] = one.demand
    return demand


def added(parts: Iterable[Amounts]) -> dict[str, int]:
    """All parts together."""
    found: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            found[name] = found.get(name, 0) + amount
    return found


def shown(amounts: Amounts) -> str:
    """ "CPU 4, seat 0.5", for people."""
    return ", ".join(f"{name} {amount / UNIT:g}" for name, amount in amounts.items())
