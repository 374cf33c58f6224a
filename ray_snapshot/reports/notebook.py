"""Snapshots, verdicts and rows as fragments of HTML, for notebooks: no scripts, no styles that reach beyond them.

The drawings and words are those of the reports. All that comes from a history is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from ray_snapshot.evidence import names, records
from ray_snapshot.reports.gathering import facts
from ray_snapshot.reports.texts import plain
from ray_snapshot.reports.waits import wait_records
from ray_snapshot.verdicts import word_of
from ray_snapshot.views.tables import text_of
from ray_snapshot.views.wait_picture import picture
from ray_snapshot.views.wait_svg import svg

if TYPE_CHECKING:
    from ray_snapshot.history import History
    from ray_snapshot.snapshot import Snapshot
    from ray_snapshot.verdicts import Verdict

MOST_ROWS = 20
MOST_CELL = 80

LISTED = (
    "snapshot_id",
    "system",
    "started_at",
    "status",
    "duration_ms",
    "machine_count",
    "in_flight_count",
    "consistent",
)


def snapshot_html(snapshot: Snapshot) -> str:
    """Its facts, and who waits for whom in it."""
    waits, more = wait_records(snapshot)
    note = f"<p>... and {more:,} more waits</p>" if more else ""
    return f"{_titled(f'{snapshot.system}: snapshot', table(('', ''), facts(snapshot)))}{svg(picture((), waits))}{note}"


def verdict_html(verdict: Verdict) -> str:
    """What it says, and the drawing of its deadlock, if it has one."""
    head = f"{verdict.detector}: {'ALARM: ' if verdict.alarm else ''}{word_of(verdict.holds)}"
    found = _titled(head, f"<p>{escape(plain(verdict.sentence, 2_000))}</p>")
    members = records(verdict.evidence.get("members"))
    if verdict.holds is False or not members:
        return found
    told = verdict.evidence.get("cores")
    cores = [names(core) for core in told] if isinstance(told, list) else []
    behind = records(verdict.evidence.get("stuck_behind"))
    return found + svg(picture(members, behind, cores, is_certain=bool(verdict.holds)))


def history_html(history: History) -> str:
    """Its last snapshots."""
    rows = history.snapshot_table()
    last = rows.slice(max(0, rows.num_rows - MOST_ROWS)).select(LISTED).to_pylist()
    shown = table(LISTED, ([row[name] for name in LISTED] for row in last))
    return _titled(f"History {history.path}: {rows.num_rows:,} snapshots", shown)


def rows_html(rows: Sequence[Mapping[str, Any]]) -> str:
    """The first of them."""
    heads = list(rows[0]) if rows else []
    shown = table(heads, ([row[name] for name in heads] for row in rows[:MOST_ROWS]))
    return _titled(f"{len(rows):,} rows", shown) + ("<p>...</p>" if len(rows) > MOST_ROWS else "")


def table(heads: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """An HTML table; long values are cut."""
    named = [escape(name) for name in heads]
    head = f"<thead><tr>{''.join(f'<th>{name}</th>' for name in named)}</tr></thead>" if any(named) else ""
    body = "".join(f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in row)}</tr>" for row in rows)
    return f"<table>{head}<tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    return escape(plain(text_of(value), MOST_CELL))


def _titled(title: str, body: str) -> str:
    return f"<div><strong>{escape(plain(title))}</strong>{body}</div>"
