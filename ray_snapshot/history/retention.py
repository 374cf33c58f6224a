"""Retention: which snapshots are kept, and removing the others, whole and from all tables.

The row in `snapshots` goes first: without it a snapshot does not exist any more. Its checkpoint goes last. If this
process dies in between, its record says which rows and checkpoints belong to no snapshot any more, and the next upkeep
removes them. Imports no Ray.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.addresses import AnyPath
from ray_snapshot.errors import SettingError
from ray_snapshot.history import checkpoints, leases, owners, tables, upkeep

_EPOCH, _US = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")


def duration(text: str, option: str) -> timedelta:
    """A duration as the command line has it: 90s, 30m, 1h, 30d, 4w; raises `SettingError`."""
    found = _DURATION.fullmatch(text.strip())
    try:
        if found is not None and (length := timedelta(**{_UNITS[found[2]]: float(found[1])})):
            return length
    except OverflowError:
        pass
    raise SettingError(f"{option} {text!r} is no duration: write a number and s, m, h, d or w, like 30d or 1h")


def to_drop(
    snapshots: pa.Table, keep: timedelta | None, keep_every: timedelta | None, now: datetime | None = None
) -> list[str]:
    """The ids of the snapshots that are to go.

    `keep`: all that started within so long before `now` stay (None: none because of their age). `keep_every`: of the older
    ones, the first of each run in every such interval of the clock stays (None: none of them).

    The latest of each system that can be restored stays, however old it is: a system that is running goes back to it.
    """
    if keep is None and keep_every is None:
        return []
    columns = ["started_at", "snapshot_id", "run_id", "system", "status", "restorable"]
    rows = tables.in_order(snapshots.select(columns), _ORDER)
    started = rows["started_at"].cast(pa.int64()).to_numpy()
    stays = _latest_restorable(rows)
    if keep is not None:
        stays |= started >= (((now or datetime.now(UTC)) - _EPOCH) // _US) - keep // _US  # may lie before the year 1
    if keep_every is not None:
        stays |= _first_of_each(rows, started // (keep_every // _US))
    found: list[str] = rows["snapshot_id"].filter(pa.array(~stays)).to_pylist()
    return found


_ORDER = ("started_at", "snapshot_id")


def _latest_restorable(rows: pa.Table) -> np.ndarray:
    """The last row of each system that is a snapshot which can be restored."""
    can = pc.and_(pc.equal(rows["status"], "complete"), pc.fill_null(rows["restorable"], False))
    latest = dict(zip(rows["system"].filter(can).to_pylist(), np.flatnonzero(can.to_numpy()), strict=True))
    found = np.zeros(rows.num_rows, bool)
    found[list(latest.values())] = True
    return found


def _first_of_each(rows: pa.Table, interval: np.ndarray) -> np.ndarray:
    """The first snapshot of each run in each interval; complete ones before those that were given up."""
    frame = pa.table(
        {
            "run_id": rows["run_id"],
            "interval": interval,
            "is_aborted": pc.not_equal(rows["status"], "complete"),
            "row": np.arange(rows.num_rows),
        }
    ).sort_by([(name, "ascending") for name in ("run_id", "interval", "is_aborted", "row")])
    first = frame.group_by(["run_id", "interval"], use_threads=False).aggregate([("row", "first")])
    found = np.zeros(rows.num_rows, bool)
    found[first["row_first"].to_numpy()] = True
    return found


def count_rows(path: AnyPath, snapshot_ids: Sequence[str]) -> dict[str, int]:
    """How many rows would go with the snapshots, table by table, and how many checkpoints."""
    ids = sorted(snapshot_ids)
    found = {}
    for name in _TABLES:
        affected = tables.data_files(path, name, tables.open_table(path, name), snapshot_ids=ids) if ids else []
        found[name] = sum(upkeep.doomed(file, ("snapshot_id", ids)) for file in affected)
    if tables.has_log(path / "actions"):
        runs = sorted(_runs_over(path, ids))
        traces = tables.data_files(path, "actions", tables.open_table(path, "actions")) if runs else []
        found["actions"] = sum(upkeep.doomed(file, ("run_id", runs)) for file in traces)
    return found | _counted(len(checkpoints.there(path, ids)))


def drop(path: AnyPath, snapshot_ids: Sequence[str], owner: owners.Owner | leases.Lease) -> dict[str, int]:
    """Remove whole snapshots from all tables, and their checkpoints; returns how many rows went, table by table, and how
    many checkpoints.

    The trace of a run goes with the last of its snapshots.
    """
    over = _runs_over(path, snapshot_ids)
    owner.intend(snapshot_ids)
    found = {name: upkeep.drop(path, name, snapshot_ids, owner.owner) for name in _TABLES}
    if tables.has_log(path / "actions"):
        found["actions"] = upkeep.drop(path, "actions", over, owner.owner, column="run_id")
    found |= _counted(checkpoints.remove(path, snapshot_ids))
    owner.intend(())
    return found


def _counted(count: int) -> dict[str, int]:
    """The count of checkpoints as an item to add to a result; no item if there are none."""
    return {checkpoints.FOLDER: count} if count else {}


def _runs_over(path: AnyPath, snapshot_ids: Sequence[str]) -> set[str]:
    """The runs of which no snapshot is left without these."""
    table = tables.open_table(path, "snapshots")
    rows = tables.scan("snapshots", tables.data_files(path, "snapshots", table), columns=["snapshot_id", "run_id"])
    goes = pc.is_in(rows["snapshot_id"], value_set=pa.array(list(snapshot_ids), pa.string()))
    left = set(rows.filter(pc.invert(goes))["run_id"].to_pylist())
    return set(rows.filter(goes)["run_id"].to_pylist()) - left


_TABLES = ("snapshots", "verdicts", *tables.DETAIL_TABLES)
"""The tables from which the rows of a snapshot go, in this order."""
