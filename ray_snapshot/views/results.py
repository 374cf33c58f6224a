"""How the results of quick questions and of Spark jobs are shown: which columns, under which title; each result once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ray_snapshot.views.tables import Column, print_table
from ray_snapshot.wrapping import print_text

if TYPE_CHECKING:
    import pyarrow as pa

LONGEST = 200
"""Characters of a value in a table; `--json` has all of them."""


@dataclass(frozen=True, slots=True)
class View:
    """How one result is shown: which of its columns, under which title, sorted by which (`-` in front: the largest first)."""

    name: str
    title: str
    columns: tuple[str, ...]
    order: tuple[str, ...] = ()
    none: str = "none"
    """What is said where there is no row."""
    minor: tuple[str, ...] = ()
    """Columns that a narrow terminal does without, the first of them first."""
    notes: tuple[tuple[str, Any, str, str], ...] = ()
    """(column, value, the column that names a row, what it means): said below the table of the rows that have the value."""


_DETECTOR = ("system", "run_id", "detector")
_CHANNEL = ("source", "target", "kind")

CONSERVATION = (
    View(
        "ledger",
        "Ledger",
        (
            *(*_DETECTOR, "snapshot_id", "started_at", "in_machines", "in_flight"),
            *("total", "expected", "difference", "unreadable", "holds"),
        ),
        order=(*_DETECTOR, "sequence"),
        minor=("run_id", "started_at", "unreadable", "in_machines", "in_flight", "expected", "system"),
        none="nothing to count: no TokenConservation is stored with these snapshots (`analyze HISTORY conservation` counts"
        " what --state, --message and --total say)",
    ),
    View(
        "breaks",
        "Where it broke",
        (
            *(*_DETECTOR, "snapshots", "held", "broken", "unknown"),
            *("first_broken", "first_broken_at", "difference", "last_right"),
        ),
        order=_DETECTOR,
        minor=("run_id", "first_broken_at", "last_right", "unknown", "snapshots", "held", "broken", "system"),
    ),
    View(
        "changed_machines",
        "Machines that changed there, the unexplained first",
        (*_DETECTOR, "machine", "before", "after", "difference", "sent", "accepted", "unexplained"),
        order=(*_DETECTOR, "-unexplained", "-size", "machine"),
        minor=("run_id", "detector", "sent", "accepted", "system"),
    ),
    View(
        "changed_channels",
        "Channels that changed there, the incomplete first",
        (*_DETECTOR, *_CHANNEL, "before", "after", "sent", "accepted", "missing"),
        order=(*_DETECTOR, "-size", *_CHANNEL),
        minor=("run_id", "detector", "kind", "sent", "accepted", "system"),
    ),
)
"""Of `ask HISTORY conservation` and `analyze HISTORY conservation`."""

CHANGES = (
    View(
        "machines",
        "Machines that appeared, vanished or were replaced",
        ("system", "run_id", "machine", "class_name", "event", "snapshot_id", "started_at", "before", "after"),
        order=("system", "run_id", "sequence", "machine", "event"),
        minor=("run_id", "started_at", "class_name", "before", "after"),
    ),
    View(
        "fields",
        "Fields that changed, the rarest first",
        ("system", "run_id", "class_name", "field", "changes", "machines", "first_id", "last_id"),
        order=("changes", "system", "run_id", "class_name", "field"),
        minor=("run_id", "last_id", "class_name"),
    ),
    View(
        "changes",
        "What changed",
        ("system", "run_id", "machine", "class_name", "field", "snapshot_id", "started_at", "before", "after"),
        order=("system", "run_id", "-sequence", "machine", "field"),
        minor=("run_id", "started_at", "class_name"),
        none="no such change",
    ),
)
"""Of `ask HISTORY diff` and `analyze HISTORY changes`."""


def print_rows(view: View, table: pa.Table, top: int) -> None:
    """Print the first `top` rows of a table, in their order."""
    if not table.num_rows:
        print_text(f"{view.title}: {view.none}")
        return
    more = f" (the first {top}; --top shows more)" if table.num_rows > top else ""
    print_shown(view, table.slice(0, top), view.title + more)


def print_shown(view: View, table: pa.Table, title: str) -> None:
    """Print all rows of a table, under a title."""
    shown = table.to_pylist()
    rows = [{name: readable(value) for name, value in row.items()} for row in shown]
    columns = [_column(view, name, [row[name] for row in shown], table[name].type) for name in view.columns]
    print_table(rows, columns, title=title)
    for name, value, naming, meaning in view.notes:
        named = dict.fromkeys(str(row[naming]) for row in shown if row[name] == value)
        if named:
            print_text(f"{', '.join(named)}: {name.replace('_', ' ')} {value}, {meaning}")


def _column(view: View, name: str, values: list[Any], kind: pa.DataType) -> Column:
    """Text that has spaces may be broken at them; names and ids have none."""
    import pyarrow as pa

    minor = len(view.minor) - view.minor.index(name) if name in view.minor else 0
    wraps = any(isinstance(value, str) and " " in value for value in values)
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return Column(heading(name), name, right=bool(is_number), wraps=wraps, minor=minor)


def heading(name: str) -> str:
    """The name of a column, for a person."""
    if name.endswith("_at"):
        return f"{name[:-3].replace('_', ' ')} (UTC)"
    return name.removesuffix("_id").removesuffix("_name").replace("_", " ")


def readable(value: Any) -> Any:
    """Numbers with thousands apart and without digits that mean nothing, long texts without their ends; all else as it is."""
    if isinstance(value, str) and len(value) > LONGEST:
        return f"{value[:LONGEST]} ... ({len(value):,} characters)"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if isinstance(value, int) or value.is_integer():
        return f"{int(value):,}"
    return f"{value:,.3f}" if abs(value) >= 1 else f"{value:.3g}"
