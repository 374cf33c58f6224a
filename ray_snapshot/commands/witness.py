"""`ray-snapshot witness HISTORY SNAPSHOT`: Dijkstra's theorem on a snapshot that was really taken.

Exit codes: 0 if everything was shown, 1 if something differed, 2 for an error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ray_snapshot.commands.consent import Trust
from ray_snapshot.commands.options import HistoryPath, RunModules
from ray_snapshot.errors import HistoryFormatError, SettingError
from ray_snapshot.wrapping import print_text

if TYPE_CHECKING:
    from ray_snapshot.history import History
    from ray_snapshot.snapshot import Snapshot
    from ray_snapshot.witness.log import Action, Log
    from ray_snapshot.witness.proof import Witness, WitnessedSnapshot

DIFFERS = 1
_MOST_LINES = 40
_MOST_OTHERS = 20
"""So many further snapshots of the run are compared with, those nearest to the one asked for."""


def register(app: typer.Typer) -> None:
    """Add the command `witness` to the command line."""
    app.command("witness", context_settings={"ignore_unknown_options": True})(witness)  # -1 is no option


def witness(
    history: HistoryPath,
    snapshot: Annotated[
        str, typer.Argument(metavar="SNAPSHOT", help="An id, its beginning, latest, or -1, -2, ...", show_default=False)
    ],
    start: Annotated[
        str | None,
        typer.Option("--from", help="Begin with this earlier snapshot of the run, not with the system's start."),
    ] = None,
    svg: Annotated[
        str | None, typer.Option(help="Draw the run and its equivalent as space-time diagrams there.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    module: RunModules = None,
    trust: Trust = False,
) -> int:
    """Show that a snapshot could have been.

    Replay the white actions of its run, compare, then the red ones.

    The system must have run with `trace=True`. Its machines' code is run: name its modules with `--module`, or say
    `--trust` if you trust whoever wrote the history.
    """
    from ray_snapshot.history import History
    from ray_snapshot.views import tables
    from ray_snapshot.witness.log import DiffersError
    from ray_snapshot.witness.proof import prove
    from ray_snapshot.witness.traces import trace_of

    os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")  # a replayed action must not start a cluster
    opened = History(history)
    run_id, recorded = _recorded(opened, snapshot)
    if recorded.repeated and not as_json:
        print_text(_by_design(recorded))
    begin = None if start is None else _start(opened, start, run_id, recorded)
    others = _others(opened, run_id, recorded)
    try:
        found = trace_of(opened, run_id)
    except DiffersError as error:
        _say(f"differs: {error}", as_json, {"proven": [], "problem": str(error)})
        return DIFFERS
    named = [module_name(name) for name in module or ()]
    modules = [*named, *consented(found, begin, named, trust, history)]
    with (
        redirect_stdout(sys.stderr),
        importable(module or (), modules),
    ):  # what machines print is no part of the answer
        proof = prove(run_id, found, recorded, start=begin, others=others, modules=modules)
    if svg is not None:
        _draw(proof, svg)
    for line in _json_lines(proof) if as_json else ():
        tables.print_json(line)
    if not as_json:
        _print(proof)
    return 0 if proof.problem is None else DIFFERS


# Whose code may be run


def module_name(name: str) -> str:
    return Path(name).stem if name.endswith(".py") else name


@contextmanager
def importable(named: Sequence[str], modules: Sequence[str]) -> Iterator[None]:
    """Modules are found beside the files that were named, and, if any may be imported, in the current folder."""
    before = list(sys.path)
    beside = [str(Path(name).resolve().parent) for name in named if name.endswith(".py")]
    sys.path[:0] = [*beside, os.getcwd()] if modules else []
    try:
        yield
    finally:
        sys.path[:] = before


def consented(log: Log, begin: WitnessedSnapshot | None, named: Sequence[str], trust: bool, history: str) -> list[str]:
    """The packages that only the history names, if the user trusts it."""
    from ray_snapshot.commands import consent
    from ray_snapshot.decoding import places_of
    from ray_snapshot.witness.modules import Modules, loaded
    from ray_snapshot.witness.proof import class_names, foreign_names

    known = Modules(frozenset(named) | loaded(class_names(log)))
    modules = {
        places[0][0].partition(".")[0]
        for name in foreign_names(log, begin)
        if (places := places_of(name)) and not any(known.allows(module) for module, _ in places)
    }
    return sorted(modules) if consent.is_given(trust, modules, history) else []


def _say(text: str, as_json: bool, row: dict[str, Any]) -> None:
    from ray_snapshot.views import tables

    tables.print_json(row) if as_json else print_text(tables.one_line(text))


# What the history holds


def _recorded(history: History, text: str) -> tuple[str, WitnessedSnapshot]:
    """(run, snapshot) asked for."""
    snapshot_id = history.resolve(text)
    loaded = history.load(snapshot_id)
    if loaded.status != "complete":
        raise SettingError(
            f"snapshot {snapshot_id} was given up: there is nothing to show of it; choose a complete one"
        )
    return loaded.run_id, _compared(history, loaded)


def _compared(history: History, loaded: Snapshot) -> WitnessedSnapshot:
    """What the witness compares with; raises `HistoryFormatError` if it is no JSON, or not of its shape."""
    from ray_snapshot.witness.proof import recorded_of

    try:
        return recorded_of(loaded)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise HistoryFormatError(
            f"history {history.path}: snapshot {loaded.snapshot_id} cannot be compared with: {type(error).__name__}:"
            f" {error}; see `ray-snapshot history verify`",
            path=history.path,
            snapshot_id=loaded.snapshot_id,
        ) from None


def _start(history: History, text: str, run_id: str, recorded: WitnessedSnapshot) -> WitnessedSnapshot:
    run, start = _recorded(history, text)
    if run != run_id or start.number >= recorded.number:
        raise SettingError(
            f"--from {start.snapshot_id}: it must be an earlier snapshot of the same run than {recorded.snapshot_id}"
        )
    return start


def _others(history: History, run_id: str, recorded: WitnessedSnapshot) -> list[WitnessedSnapshot]:
    """Further snapshots of the run: those nearest, and the last."""
    rows = [row for row in history.snapshots(run_id=run_id) if row.status == "complete"]
    near = sorted(
        (row for row in rows if row.sequence != recorded.number), key=lambda row: abs(row.sequence - recorded.number)
    )
    chosen = {row.snapshot_id for row in [*near[:_MOST_OTHERS], *sorted(near, key=lambda row: row.sequence)[-1:]]}
    loaded = history.load_many(sorted(chosen)) if chosen else ()
    return sorted((_compared(history, one) for one in loaded), key=lambda one: one.number)


# What is shown


def _print(proof: Witness) -> None:
    from ray_snapshot.views import tables

    recorded = proof.recorded
    begin = "the system's start" if proof.start is None else f"snapshot {proof.start.snapshot_id}"
    print_text(
        f"witness of snapshot {recorded.snapshot_id} (number {recorded.number} of run {proof.run_id}), from {begin}"
    )
    _print_actions("white", proof.white)
    print("\nthe snapshot:")
    _print_lines([f"{machine}  {_json(state)}" for machine, state in sorted(recorded.states.items())])
    _print_lines([f"{machine}  (recorded inside an action, without state)" for machine in recorded.without_state])
    _print_lines(_in_flight(recorded))
    _print_actions("red", proof.red)
    if proof.log.left_out:
        print_text(
            f"\n{len(proof.log.left_out)} actions at the end of the trace are left out: they were not over, or follow from what"
            " was not logged any more"
        )
    print()
    for sentence in proof.proven:
        print_text(f"shown: {tables.one_line(sentence)}.")
    if proof.problem is None and proof.trivial is not None:
        print_text(f"a trivial cut: {proof.trivial}; a snapshot that was taken while machines acted shows more.")
    print_text(
        "proven: the snapshot is a state that could have been."
        if proof.problem is None
        else f"differs{', by design (see above)' if recorded.repeated else ''}: {tables.one_line(str(proof.problem))}"
    )


def _by_design(recorded: WitnessedSnapshot) -> str:
    return (
        f"snapshot {recorded.snapshot_id} is no consistent cut, by design of at-least-once-barrier:"
        f" {recorded.repeated} messages from outside it are in its states, and a restore repeats them. So it need not be"
        " a state that could have been."
    )


def _print_actions(colour: str, actions: list[Action]) -> None:
    from ray_snapshot.reports.runs import label, numbered

    print(f"\n{colour} actions ({len(actions)}), in their order:")
    _print_lines(
        [f"{action.machine} {numbered(action)}  {label(action)}" for action in actions], keep_end=colour == "white"
    )


def _print_lines(lines: list[str], *, keep_end: bool = False) -> None:
    """At most so many lines, those nearest to the snapshot."""
    from ray_snapshot.views import tables

    less = len(lines) - _MOST_LINES
    if less > 0 and keep_end:
        print(f"  ({less} earlier; --json gives all)")
    for line in lines[-_MOST_LINES:] if keep_end else lines[:_MOST_LINES]:
        print(f"  {tables.one_line(line)[:160]}")
    if less > 0 and not keep_end:
        print(f"  ({less} more; --json gives all)")


def _in_flight(recorded: WitnessedSnapshot) -> list[str]:
    from ray_snapshot.witness.log import told_channel

    return [f"{told_channel(message.channel)}  in flight: {message}" for message in recorded.in_flight]


def _json(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)


def _json_lines(proof: Witness) -> list[dict[str, Any]]:
    """The actions of both colours with their vector clocks, the snapshot in between, and what was shown."""
    from ray_snapshot.reports.runs import traced_events, vector_clocks

    clocks = vector_clocks(traced_events(proof.log.actions))
    recorded = proof.recorded
    middle = {
        "snapshot_id": recorded.snapshot_id,
        "machines": recorded.states,
        "messages": [message.row for message in recorded.in_flight],
    }
    last = {
        "proven": proof.proven,
        "trivial": proof.trivial,
        "problem": None if proof.problem is None else str(proof.problem),
        "machine": getattr(proof.problem, "machine", None),
        "number": getattr(proof.problem, "number", None),
    }
    white = [_json_action("white", action, clocks) for action in proof.white]
    red = [_json_action("red", action, clocks) for action in proof.red]
    return [*white, middle, *red, last]


def _json_action(colour: str, action: Action, clocks: Any) -> dict[str, Any]:
    return {
        "colour": colour,
        "machine": action.machine,
        "number": action.number,
        "step": action.step + 1,
        "method": action.method,
        "accepted": [_json_message(message, "source") for message in action.accepted],
        "sent": [_json_message(message, "target") for message in action.sent],
        "clock": clocks[action.key],
    }


def _json_message(message: Any, end: str) -> dict[str, Any]:
    return {name: item for name, item in message.row.items() if name != ("target" if end == "source" else "source")}


def _draw(proof: Witness, path: str) -> None:
    from ray_snapshot.commands.files import write_file
    from ray_snapshot.reports import runs
    from ray_snapshot.views.space_time import Cut

    cut = Cut(f"snapshot {proof.recorded.number}", proof.cut)
    write_file(path, runs.both_ways(runs.traced_events(proof.log.actions), cut))
