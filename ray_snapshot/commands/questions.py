"""`ray-snapshot ask HISTORY since | conservation | diff`, and `sql HISTORY`: quick questions, without Spark.

Exit codes: 0, or 2 for an error; `since` exits 1 if a detector failed when it was asked, as `analyze HISTORY detections` does.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ray_snapshot.commands.history import Json, Limit, Run, System, last
from ray_snapshot.commands.options import HistoryPath, open_history
from ray_snapshot.names import noun_of
from ray_snapshot.questions.shown import CHANGES, CONSERVATION, SINCE, View
from ray_snapshot.views import tables
from ray_snapshot.views.results import LONGEST, print_result, readable
from ray_snapshot.views.tables import Column
from ray_snapshot.wrapping import print_text

if TYPE_CHECKING:
    import pyarrow as pa


FAILED = 1
"""The answer is there, but a detector failed on the way."""

TIMEOUT_S = 60.0
_ROWS = 50
_MOST_IN_A_TABLE = 100_000

DetectorName = Annotated[str | None, typer.Option(help="Only this detector.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add the questions to the command line."""
    group = typer.Typer()
    group.callback()(_ask)
    app.add_typer(group, name="ask", help="Ask a history a quick question, without Spark.")
    for name, command in _QUESTIONS.items():
        settings = {"ignore_unknown_options": name == "diff"}  # -1 is no option
        group.command(name, context_settings=settings)(_of_group(command))
        app.command(name, hidden=True, context_settings=settings)(command)
    app.command("sql")(sql)


def _list_questions(wanted: bool) -> None:
    if wanted:
        for name, command in _QUESTIONS.items():
            print_text(f"{name}: {(command.__doc__ or '').splitlines()[0]}")
        raise typer.Exit


def _ask(
    context: typer.Context,
    history: HistoryPath,
    names: Annotated[  # noqa: ARG001 - its callback does it
        bool, typer.Option("--list", help="List the questions.", callback=_list_questions, is_eager=True)
    ] = False,
) -> None:
    """Takes what stands before the question."""
    context.obj = history


def _of_group(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command without its history, which stands before its name."""

    @wraps(command)
    def asked(context: typer.Context, **options: Any) -> Any:
        return command(history=context.obj, **options)

    said = inspect.signature(command, eval_str=True)
    _, *others = said.parameters.values()
    context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    asked.__signature__ = said.replace(parameters=[context, *others])  # type: ignore[attr-defined] # typer reads it
    return asked


def conservation(
    history: HistoryPath,
    system: System = None,
    run: Run = None,
    detector: DetectorName = None,
    limit: Limit = None,
    json: Json = False,
) -> None:
    """Does a conserved quantity hold, and since when not?

    The ledger, and what changed where it broke.
    """

    opened = open_history(history)
    from ray_snapshot.questions import conservation as ask

    found = ask(opened, system=system, run=run, detector=detector)
    if json:
        _print_json(last(found["ledger"], limit or 0))
        return
    most = _ROWS if limit is None else limit
    for view in CONSERVATION:
        if found[view.name].num_rows:
            _print(view, found[view.name], most, is_latest=view.name == "ledger")
        elif view.name == "ledger":
            print_text(view.none)
            return
    for row in found["breaks"].slice(0, _ROWS).to_pylist():
        if row["first_broken"] is not None and opened.action_count(row["run_id"]):
            told = tables.one_line(row["first_broken"])
            print_text(
                f"its run was traced: `ray-snapshot blame HISTORY {told}` names the first action behind which it is broken"
            )


def since(
    history: HistoryPath,
    system: System = None,
    run: Run = None,
    detector: DetectorName = None,
    limit: Limit = None,
    json: Json = False,
) -> int:
    """Since when does each detector's answer stand?

    And how often it held: by the live verdicts.
    """

    opened = open_history(history)
    from ray_snapshot.questions import since as ask

    found = ask(opened, system=system, run=run, detector=detector)["detectors"]
    if json:
        _print_json(found.slice(0, limit) if limit else found)
    elif found.num_rows:
        words = [_now(row) for row in found.to_pylist()]
        rows = found.set_column(found.column_names.index("holds"), "holds", [words])
        _print(SINCE, rows, _ROWS if limit is None else limit)
    else:
        print("no live verdicts on completed snapshots")
    failed = [row for row in found.to_pylist() if row["failed"]]
    for row in failed[:_ROWS]:
        print(
            f"ray-snapshot: detector {row['detector']} of {row['system']} failed on {row['failed']} of {row['evaluated']}"
            f" snapshots: {tables.one_line(row['failure'])[:LONGEST]}",
            file=sys.stderr,
        )
    return FAILED if failed else 0


def diff(
    history: HistoryPath,
    one: Annotated[
        str | None,
        typer.Argument(
            metavar="[ONE]",
            help="An id, its beginning, latest, or -1, -2, ... (default: the one before OTHER in its run).",
        ),
    ] = None,
    other: Annotated[
        str | None, typer.Argument(metavar="[OTHER]", help="The same (default: the latest that was completed).")
    ] = None,
    system: System = None,
    run: Run = None,
    machine: Annotated[str | None, typer.Option(help="Only this machine.", show_default=False)] = None,
    field: Annotated[str | None, typer.Option(help="Only this field of the states.", show_default=False)] = None,
    limit: Limit = None,
    json: Json = False,
) -> None:
    """What differs between two snapshots?

    Machines that came, went or moved, and fields of their states.
    """

    opened = open_history(history)
    from ray_snapshot.questions import diff as ask
    from ray_snapshot.questions import two_snapshots

    ids = two_snapshots(opened, one, other, system=system, run=run)
    found = ask(opened, *ids, system=system, machine=machine, field=field)
    if json:
        _print_json(found["changes"].slice(0, limit) if limit else found["changes"])
        return
    print(f"from {tables.one_line(ids[0])}\nto   {tables.one_line(ids[1])}")
    if not found["changes"].num_rows:
        print("no such change" if machine or field else "nothing changed")
        return
    most, (protocol,) = _ROWS if limit is None else limit, opened.table("snapshots", ids[1])["protocol"].to_pylist()
    for view in CHANGES:
        if found[view.name].num_rows:
            columns = tuple(name for name in view.columns if name not in _OF_BOTH)
            _print(replace(view, columns=columns), found[view.name], most, noun=noun_of(protocol))


def sql(
    history: HistoryPath,
    query: Annotated[
        str,
        typer.Argument(
            metavar="QUERY",
            help="One query in DuckDB's SQL; the tables are snapshots, machines, channels, messages, calls, waits, verdicts,"
            " actions, classes.",
            show_default=False,
        ),
    ],
    limit: Limit = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that it may take.")] = TIMEOUT_S,
    json: Json = False,
) -> None:
    """Ask the tables of a history in SQL.

    Nothing else can be read, and nothing written.
    """
    from ray_snapshot.errors import QueryError
    from ray_snapshot.questions.query import MOST_ROWS
    from ray_snapshot.questions.query import sql as ask

    all_rows = MOST_ROWS if json else _MOST_IN_A_TABLE
    most = min((0 if json else _ROWS) if limit is None else limit, all_rows) or all_rows
    rows, is_cut = ask(history, query, limit=most, timeout=timeout)
    try:
        if json:
            _print_json(rows)
        elif rows.num_rows:
            tables.print_table(rows.to_pylist(), [_column(field) for field in rows.schema])
        else:
            print(f"no rows ({', '.join(map(tables.one_line, rows.column_names))})")
    except (ValueError, OverflowError) as error:
        raise QueryError(f"a value of the answer cannot be shown ({error}): cast it to text, with ::varchar") from error
    if is_cut:
        hint = "" if most == all_rows else "; --limit 0 shows more"
        print(f"(there are more than {most:,} rows{hint})", file=sys.stderr if json else sys.stdout)


_QUESTIONS: dict[str, Callable[..., Any]] = {"since": since, "conservation": conservation, "diff": diff}


# ---- how it is shown ---------------------------------------------------------------------------------------------------


def _now(row: Any) -> str:
    word = {True: "yes", False: "no", None: "unknown"}[row["holds"]]
    return f"{word} (alarm)" if row["alarm"] else word


_OF_BOTH = ("system", "run_id", "snapshot_id", "started_at", "changes", "first_id", "last_id")
"""What is the same in all rows of a `diff`."""


def _print(view: View, rows: pa.Table, most: int, *, is_latest: bool = False, noun: str = "machine") -> None:
    """The first rows of a result, or the latest ones, under its title."""
    shown = last(rows, most) if is_latest else rows.slice(0, most) if most else rows
    print_result(shown, view.title, view.columns, view.minor, noun)
    if left := rows.num_rows - shown.num_rows:
        print(f"({left:,} {'earlier' if is_latest else 'more'} not shown; --limit 0 shows all)")
    print()


_ROWS_AT_ONCE = 10_000


def _print_json(rows: pa.Table) -> None:
    """One JSON object a line; never all of them as Python's objects at once."""
    for begin in range(0, rows.num_rows, _ROWS_AT_ONCE):
        for row in rows.slice(begin, _ROWS_AT_ONCE).to_pylist():
            tables.print_json(row)


def _column(field: pa.Field) -> Column:
    """A column of an answer in SQL, as it comes: the query says what is wanted."""
    import pyarrow as pa

    is_number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
    is_text = pa.types.is_string(field.type)

    def cell(row: Any) -> Any:
        value = row[field.name]
        return f"{value:.6g}" if isinstance(value, float) else readable(value) if isinstance(value, str) else value

    return Column(tables.one_line(field.name), cell, right=is_number, wraps=is_text)
