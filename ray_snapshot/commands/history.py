"""`ray-snapshot history list | show | verdicts | verify | compact | vacuum HISTORY`: look at it, keep it small.

Each is a command without `history` in front, too, which is not listed.

Exit codes: 0, or 2 for an error; `verify` exits 1 if a snapshot did not pass.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ray_snapshot.commands.options import HistoryPath, open_history
from ray_snapshot.commands.synth import synth
from ray_snapshot.names import CALLS, noun_of, word_for
from ray_snapshot.waits import SEE_WAITS
from ray_snapshot.wrapping import print_text

if TYPE_CHECKING:
    import pyarrow as pa

    from ray_snapshot.history import History, Row

Json = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
System = Annotated[str | None, typer.Option(help="Only this system.", show_default=False)]
Run = Annotated[str | None, typer.Option(help="Only this run (run_id, or its beginning).", show_default=False)]


def _countable(limit: int | None) -> int | None:
    """No more than Arrow counts."""
    return None if limit is None else min(limit, sys.maxsize)


Limit = Annotated[
    int | None,
    typer.Option(min=0, help="How many rows at most; 0: all.", show_default=False, callback=_countable),
]

Keep = Annotated[
    str | None,
    typer.Option(help="Remove snapshots that are older, whole, like 30d (s, m, h, d, w).", show_default=False),
]
KeepEvery = Annotated[
    str | None,
    typer.Option(help="Of those older than --keep (without it: of all) keep one of each run in so long, like 1h."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")]

NOT_PASSED = 1
_MOST_HOURS = 1_000_000
"""More than a hundred years."""
_ROWS = 50
_ROWS_AT_ONCE = 1_000


def register(app: typer.Typer) -> None:
    """Add the commands on histories to the command line."""
    group = typer.Typer()
    app.add_typer(group, name="history", help="List, show, check, shrink or make up histories.")
    commands: dict[str, Callable[..., Any]] = {
        "list": list_snapshots, "show": show, "verdicts": verdicts, "verify": verify, "compact": compact,
        "vacuum": vacuum, "synth": synth,
    }  # fmt: skip
    for name, command in commands.items():
        settings = {"ignore_unknown_options": name == "show"}  # -1 is no option
        group.command(name, context_settings=settings)(command)
        app.command(name, hidden=True, context_settings=settings)(command)


def list_snapshots(
    history: HistoryPath, system: System = None, run: Run = None, limit: Limit = None, json: Json = False
) -> None:
    """List the snapshots, latest last."""
    from ray_snapshot.views import tables

    opened = open_history(history)
    _check_known(opened, system, run)
    rows = _of_run(opened.snapshot_table(system), run)
    if json:
        _print_json_rows(opened, "snapshots", last(rows, limit or 0))
        return
    shown = last(rows, _ROWS if limit is None else limit)
    several = len(set(shown["system"].to_pylist())) > 1
    noun = noun_of(CALLS if {*shown["protocol"].to_pylist()} == {CALLS} else None)
    columns = [
        tables.Column("snapshot", "snapshot_id"),
        tables.Column("system", "system", minor=0 if several else 4),
        tables.Column("run", "run_id", minor=8),
        tables.Column("started (UTC)", "started_at", minor=9),
        tables.Column("ms", "duration_ms", right=True, minor=5),
        tables.Column("status", "status", minor=1),
        tables.Column(f"{noun}s", "machine_count", right=True, minor=6),
        tables.Column(word_for("channels", noun), "channel_count", right=True, minor=7),
        tables.Column("in flight", "in_flight_count", right=True, minor=3),
        tables.Column("consistent", "consistent", minor=2),
    ]
    tables.print_table(_each(opened, "snapshots", shown), columns)
    _say_earlier(rows.num_rows, shown.num_rows, "snapshots")


def verdicts(
    history: HistoryPath,
    system: System = None,
    run: Run = None,
    detector: Annotated[str | None, typer.Option(help="Only this detector.", show_default=False)] = None,
    snapshot: Annotated[
        str | None,
        typer.Option(help="Only this snapshot (id, its beginning, latest, -1).", show_default=False),
    ] = None,
    alarms: Annotated[bool, typer.Option("--alarms", help="Only those that a person must hear of.")] = False,
    limit: Limit = None,
    json: Json = False,
) -> None:
    """List the verdicts of the detectors, latest last."""
    from ray_snapshot.views import tables

    opened = open_history(history)
    _check_known(opened, system, run, detector)
    snapshot_id = None if snapshot is None else opened.resolve(snapshot, system=system)
    rows = _of_run(opened.verdict_table(detector, snapshot_id, system=system), run)
    rows = rows.filter(rows["alarm"]) if alarms else rows
    if json:
        _print_json_rows(opened, "verdicts", last(rows, limit or 0))
        return
    shown = last(rows, _ROWS if limit is None else limit)
    columns = [
        tables.Column("snapshot", "snapshot_id"),
        tables.Column("system", "system", minor=1),
        tables.Column("detector", "detector"),
        tables.Column("by", "evaluator", minor=2),
        tables.Column("holds", _holds, wraps=True),
        tables.Column("sentence", "sentence", wraps=True),
    ]
    tables.print_table(_each(opened, "verdicts", shown), columns)
    _say_earlier(rows.num_rows, shown.num_rows, "verdicts")


def show(
    history: HistoryPath,
    snapshot: Annotated[
        str,
        typer.Argument(metavar="[SNAPSHOT]", help="An id, its beginning, latest, or -1, -2, ...", show_default=False),
    ] = "latest",
    system: System = None,
    limit: Limit = None,
    json: Json = False,
) -> None:
    """Show a snapshot: who takes part, what is in flight, waits."""

    opened = open_history(history)
    _check_known(opened, system)
    snapshot_id = opened.resolve(snapshot, system=system)
    found = opened.wholes.whole(snapshot_id)
    (row,) = opened.records("snapshots", found.pop("snapshots"))
    found["verdicts"] = opened.verdict_table(snapshot_id=snapshot_id)
    if json:
        _print_snapshot_json(opened, row, found, limit or 0)
    else:
        _print_snapshot(opened, row, found, _ROWS if limit is None else limit)


def verify(history: HistoryPath, system: System = None, json: Json = False) -> int:
    """Check that snapshots are whole, consistent and readable.

    With their verdicts and checkpoints; exit code 1 if one is not.
    """
    from ray_snapshot.views import tables

    count = bad = bad_tables = 0
    unchecked: list[str] = []

    opened = open_history(history).as_stored()
    _check_known(opened, system)
    for checked, problems in opened.verify(system, unchecked):
        is_table = checked is not None and checked.startswith("table ")
        count += not is_table
        bad += bool(problems) and not is_table
        bad_tables += is_table
        if json:
            named = {"table": checked.removeprefix("table ")} if is_table else {"snapshot_id": checked}
            tables.print_json({**named, "passed": not problems, "problems": problems})
        elif problems:
            print_text(tables.one_line(f"{checked}: {'; '.join(problems)}"))
    if not json:
        _say_passed(count, bad, bad_tables)
        _say_of_some(opened, system)
        for sentence in unchecked:
            print_text(f"not checked: {sentence}")
        print_text(
            "not checked: whether verdicts follow from their snapshots (analyze detections), and traces give them (witness)"
        )
    return NOT_PASSED if bad or bad_tables else 0


def _say_passed(count: int, bad: int, bad_tables: int) -> None:
    if not bad and not bad_tables:
        print(f"{count} snapshots verified, all passed")
        return
    tables = f", and {bad_tables} tables beside them" if bad_tables else ""
    print_text(f"{count} snapshots verified, {bad} did not pass{tables}")


def _say_of_some(opened: History, system: str | None) -> None:
    """Say of how many snapshots there was nothing but their row to verify, and how many are inconsistent by design."""
    import pyarrow.compute as pc

    from ray_snapshot.snapshot import AT_LEAST_ONCE

    rows = opened.snapshot_table(system)
    is_repeating = pc.and_(pc.equal(rows["protocol"], AT_LEAST_ONCE), pc.invert(rows["consistent"]))
    if count := pc.sum(pc.and_(is_repeating, pc.equal(rows["status"], "complete"))).as_py():
        print_text(
            f"{count} of them by {AT_LEAST_ONCE}, not consistent by design: a restore repeats what duplicate_count of their"
            " channels says"
        )
    if count := pc.sum(pc.equal(rows["status"], "aborted")).as_py():
        print_text(f"given up, and without rows: {count} of them; `ray-snapshot history list` says why")


def compact(
    history: HistoryPath, keep: Keep = None, keep_every: KeepEvery = None, dry_run: DryRun = False, json: Json = False
) -> None:
    """Rewrite many small files into few large ones.

    --keep and --keep-every remove snapshots first.
    """
    from ray_snapshot.views import tables

    opened = open_history(history)
    _retain(opened, keep, keep_every, dry_run, json)
    if dry_run:
        return
    rows = [{"table": name, **counts} for name, counts in opened.compact().items()]
    columns = [
        tables.Column("table", "table"),
        tables.Column("files removed", "files_removed", right=True),
        tables.Column("files added", "files_added", right=True),
    ]
    _print(rows, columns, json)


def vacuum(
    history: HistoryPath,
    keep_hours: Annotated[
        int,
        typer.Option(
            min=0, max=_MOST_HOURS, help="Keep files for so many hours after they left the tables, for slow readers."
        ),
    ] = 168,
    keep: Keep = None,
    keep_every: KeepEvery = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Delete files that the tables need no more.

    --keep and --keep-every remove snapshots first.
    """
    from ray_snapshot.views import tables

    opened = open_history(history)
    _retain(opened, keep, keep_every, dry_run, json)
    deleted = opened.vacuum(keep_hours, dry_run=dry_run)
    rows = [{"table": name, "files_deleted": len(files), "dry_run": dry_run} for name, files in deleted.items()]
    heading = "files to delete" if dry_run else "files deleted"
    _print(rows, [tables.Column("table", "table"), tables.Column(heading, "files_deleted", right=True)], json)
    if not json:
        _say_kept(opened, sum(map(len, deleted.values())) if dry_run else 0, keep_hours)


def _retain(history: History, keep: str | None, keep_every: str | None, dry_run: bool, json: bool) -> None:
    """Remove old snapshots, and say which."""
    from ray_snapshot.history.retention import duration
    from ray_snapshot.views import tables

    if keep is None and keep_every is None:
        return
    lengths = [None if text is None else duration(text, option) for text, option in _options(keep, keep_every)]
    gone = history.retain(*lengths, dry_run=dry_run)
    if json:
        tables.print_json({"snapshots_removed": len(gone.snapshot_ids), "rows_removed": gone.rows, "dry_run": dry_run})
        return
    range_of = f": {gone.snapshot_ids[0]} to {gone.snapshot_ids[-1]}" if gone.snapshot_ids else ""
    would = "would be removed" if dry_run else "removed"
    print_text(f"{len(gone.snapshot_ids)} snapshots {would}{range_of}; rows: {_listed(gone.rows)}")


def _options(keep: str | None, keep_every: str | None) -> tuple[tuple[str | None, str], ...]:
    return (keep, "--keep"), (keep_every, "--keep-every")


def _listed(rows: dict[str, int]) -> str:
    return ", ".join(f"{count} of {name}" for name, count in rows.items() if count) or "none"


def _say_kept(history: History, listed: int, keep_hours: int) -> None:
    """Why replaced files are still there."""
    kept = sum(map(len, history.vacuum(0, dry_run=True).values())) - listed
    if kept:
        print_text(
            f"{kept} replaced files are kept: they left the tables less than {keep_hours} hours ago, and a slow reader may"
            " still need them (--keep-hours 0 takes them all)"
        )


def _check_known(history: History, system: str | None, run: str | None = None, detector: str | None = None) -> None:
    """Raise `HistoryNotFoundError`, naming what there is, for a system, run or detector that the history has not."""
    for what, wanted in (("system", system), ("run", run), ("detector", detector)):
        if wanted is not None:
            history.check_known(what, wanted)


def _of_run(rows: pa.Table, run: str | None) -> pa.Table:
    import pyarrow.compute as pc

    return rows if run is None else rows.filter(pc.starts_with(rows["run_id"], run))


def last(rows: pa.Table, limit: int) -> pa.Table:
    """The latest rows, so many; 0: all."""
    return rows.slice(max(0, rows.num_rows - limit)) if limit else rows


def _each(history: History, name: str, rows: pa.Table) -> Iterator[Row]:
    """The rows one by one: never all of them at once."""
    for begin in range(0, rows.num_rows, _ROWS_AT_ONCE):
        yield from history.each(name, rows.slice(begin, _ROWS_AT_ONCE))


def _print_json_rows(history: History, name: str, rows: pa.Table) -> None:
    from ray_snapshot.views import tables

    for row in _each(history, name, rows):
        tables.print_json(row)


def _say_earlier(rows: int, shown: int, what: str) -> None:
    if rows > shown:
        print_text(f"({rows - shown} earlier {what} not shown; --limit 0 shows all)")
    elif not rows:
        print(f"no {what}")


def _holds(row: Row) -> str:
    word = {True: "yes", False: "no", None: "suspected" if row.grade == "suspected" else "unknown"}[row.holds]
    return f"{word} (alarm)" if row.alarm else word


def _print(rows: list[dict[str, Any]], columns: list[Any], json: bool) -> None:
    from ray_snapshot.views import tables

    if not json:
        tables.print_table(rows, columns)
        return
    for row in rows:
        tables.print_json(row)


def _print_snapshot_json(history: History, row: Row, found: dict[str, pa.Table], limit: int) -> None:
    """One JSON object, written row by row: all rows of a table at once would take many times their memory."""
    from ray_snapshot.views import tables

    print(tables.json_text(row)[:-1], end="")
    for name, rows in found.items():
        print(f',"{name}":[', end="")
        for number, one in enumerate(_each(history, name, rows.slice(0, limit) if limit else rows)):
            print("," * (number > 0) + tables.json_text(one), end="")
        print("]", end="")
    print("}")


def _print_snapshot(history: History, row: Row, found: dict[str, pa.Table], limit: int) -> None:
    from ray_snapshot.views import tables

    fields, noun = {**row, "consistent": _consistent(row, found["channels"])}, noun_of(row["protocol"])
    tables.print_fields(
        (word_for(name, noun), value)
        for name, value in fields.items()
        if value not in (None, [], {}) and name != "date"
    )
    for name, columns in _shown_columns(noun).items():
        rows = found[name]
        if not rows.num_rows:
            continue
        print()
        shown = rows.slice(0, limit) if limit else rows
        told = [
            replace(column, heading=word_for(column.heading, noun))
            for column in columns
            if column.value != "duplicate_count" or _repeated(rows)
        ]
        title, more = f"{word_for(name, noun)} ({rows.num_rows})", rows.num_rows - shown.num_rows
        tables.print_table(_each(history, name, shown), told, title=title, more=more)


def _consistent(row: Row, channels: pa.Table) -> Any:
    """Whether the cut is consistent; if not, and by design, in words."""
    from ray_snapshot.snapshot import AT_LEAST_ONCE

    repeated = _repeated(channels)
    if row["consistent"] or row["protocol"] != AT_LEAST_ONCE or not repeated:
        return row["consistent"]
    return f"no, by design: {repeated} messages from outside it are in its states, and a restore repeats them ({AT_LEAST_ONCE})"


def _repeated(channels: pa.Table) -> int:
    import pyarrow.compute as pc

    return pc.sum(channels["duplicate_count"]).as_py() or 0


def _shown_columns(noun: str) -> dict[str, list[Any]]:
    """Which columns of which table a person wants to see of one snapshot."""
    from ray_snapshot.views.tables import Column

    return {
        "machines": [
            Column("machine", "machine"),
            Column("class", "class_name", minor=4),
            Column("host", "host", minor=5),
            Column("status", lambda row: row.status and word_for(row.status, noun)),
            Column("waits for", _waits_for, wraps=True),
            Column("accepted", "accepted_count", right=True, minor=3),
            Column("sent", "sent_count", right=True, minor=2),
            Column("state", "state", wraps=True, minor=1),
        ],
        "channels": [
            Column("source", "source"),
            Column("target", "target"),
            Column("kind", "kind"),
            Column("sent", "sent_count", right=True, minor=1),
            Column("accepted", "accepted_count", right=True, minor=2),
            Column("settled", "settled_count", right=True, minor=3),
            Column("in flight", "in_flight_count", right=True),
            Column("repeated", "duplicate_count", right=True),
        ],
        "messages": [
            Column("source", "source"),
            Column("target", "target"),
            Column("kind", "kind"),
            Column("number", "number", right=True, minor=1),
            Column("method", "method"),
            Column("arguments", "args", wraps=True),
        ],
        "waits": [
            Column("machine", "machine"),
            Column("call", "call_id", minor=3),
            Column("alternative", "alternative", right=True, minor=4),
            Column("k", "k", right=True),
            Column("waits for", "on_machine"),
            Column("satisfied", "satisfied", minor=1),
            Column("since (UTC)", "waiting_since", minor=2),
        ],
        "calls": [
            Column("machine", "machine"),
            Column("call", "call_id", minor=2),
            Column("caller", "caller"),
            Column("method", "method"),
            Column("at", "call_site", wraps=True),
            Column("started (UTC)", "started_at", minor=1),
        ],
        "verdicts": [
            Column("detector", "detector"),
            Column("by", "evaluator", minor=1),
            Column("holds", _holds, wraps=True),
            Column("sentence", "sentence", wraps=True),
        ],
    }


def _waits_for(row: Row) -> str:
    if not row.waits_for:
        return "-"
    modes = {"all": "all of ", "any": "any of ", "k_of_n": f"{row.wait_k} of ", SEE_WAITS: "see waits: "}
    mode = modes.get(row.wait_mode, "") if len(row.waits_for) > 1 or row.wait_mode == SEE_WAITS else ""
    times = Counter(row.waits_for)
    return mode + ", ".join(name if count == 1 else f"{name} ({count:,} times)" for name, count in times.items())
