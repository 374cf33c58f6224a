"""`ray-snapshot blame HISTORY`: which action of a traced run broke what a detector found broken.

Exit codes: 0 if nothing breaks it, 1 if an action is named, 4 if the run cannot be done again as far as that.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ray_snapshot.commands.consent import Trust
from ray_snapshot.commands.options import HistoryPath, RunModules
from ray_snapshot.errors import SettingError
from ray_snapshot.wrapping import print_text

if TYPE_CHECKING:
    from ray_snapshot.history import History
    from ray_snapshot.verdicts import Detector
    from ray_snapshot.witness.blame import Blame

BROKEN, NOT_TOLD = 1, 4


def register(app: typer.Typer) -> None:
    """Add the command `blame` to the command line."""
    app.command("blame", context_settings={"ignore_unknown_options": True})(blame)  # -1 is no option


def blame(
    history: HistoryPath,
    snapshot: Annotated[
        str,
        typer.Argument(metavar="SNAPSHOT", help="Any of the run: an id, its beginning, latest, or -1, -2, ..."),
    ] = "latest",
    detector: Annotated[
        str | None,
        typer.Option(
            help="MODULE:NAME of yours, or the name of one that was asked live; default: those that have alarmed in the run.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line, one a detector.")] = False,
    module: RunModules = None,
    trust: Trust = False,
) -> int:
    """Name the first action that broke a traced run.

    Its machine, method, arguments and source line.

    The system must have run with `trace=True`. Its machines' code is run: name its modules with `--module`, or say
    `--trust` if you trust whoever wrote the history.
    """
    from ray_snapshot.commands.beginnings import this_folder_first
    from ray_snapshot.commands.witness import consented, importable, module_name
    from ray_snapshot.history import History
    from ray_snapshot.views import tables
    from ray_snapshot.witness.log import DiffersError
    from ray_snapshot.witness.traces import run_of, trace_of

    os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")  # an action that is done again must not start a cluster
    opened = History(history)
    run_id = run_of(opened, snapshot)
    try:
        log = trace_of(opened, run_id)
    except DiffersError as error:
        print_text(tables.one_line(f"cannot be told: the trace cannot be followed: {error}"))
        return NOT_TOLD
    named = [module_name(name) for name in module or ()]
    modules = [*named, *consented(log, None, named, trust, history)]
    with this_folder_first():
        asked = _detectors(opened, run_id, detector, trust)
    with redirect_stdout(sys.stderr), importable(module or (), modules):  # what machines print is no part of the answer
        from ray_snapshot.witness.blame import blame as blamed

        found = [blamed(run_id, log, item, modules) for item in asked]
    for one in found:
        tables.print_json(_row(one)) if as_json else _print(one, len(log.actions))
    if any(one.action is not None for one in found):
        return BROKEN
    return NOT_TOLD if any(one.problem is not None or not one.was_right for one in found) else 0


def _detectors(history: History, run_id: str, asked: str | None, trust: bool) -> list[Detector]:
    """The detector asked for, or all that have alarmed in the run, by what the history has of them."""
    from ray_snapshot.detectors import from_spec
    from ray_snapshot.verdicts import load_detector
    from ray_snapshot.witness.blame import WHO_WAITS

    if asked is not None and ":" in asked:
        return [load_detector(asked)]
    rows = [row for row in history.verdicts() if row.run_id == run_id]
    said = {row.detector: row for row in rows if (row.detector == asked if asked is not None else row.alarm)}
    if not said:
        what = (
            "no detector has alarmed in this run" if asked is None else f"no detector {asked!r} was asked in this run"
        )
        raise SettingError(f"{what}: name one with --detector MODULE:NAME")
    specs = {name: _data_of(row) for name, row in said.items()}
    usable = [
        spec
        for _, spec in sorted(specs.items())
        if spec
        and (trust or spec.get("type") != "callable")
        and (asked is not None or spec.get("type") not in WHO_WAITS)
    ]
    if not usable:
        raise SettingError(
            f"{', '.join(sorted(said))}: nothing to blame an action for, or code that only the history names: name a"
            " detector with --detector MODULE:NAME, or say --trust if you trust whoever wrote the history"
        )
    return [from_spec(spec) for spec in usable]


def _data_of(row: Any) -> dict[str, Any]:
    """A detector as data; one that expects the total of an earlier snapshot gets that one's: a run begins with nothing."""
    spec: dict[str, Any] = dict(row.detector_spec or {})
    expected = (row.evidence or {}).get("expected")
    if spec.get("type") == "token-conservation" and spec.get("total") is None and expected is not None:
        spec["total"] = expected
    return spec


def _row(one: Blame) -> dict[str, Any]:
    action = one.action
    return {
        "detector": one.detector,
        "actions": one.done,
        "machine": None if action is None else action.machine,
        "number": None if action is None else action.number,
        "step": None if action is None else action.step + 1,
        "method": None if action is None else action.method,
        "accepted": None if action is None else [_message(m, m.key[0]) for m in action.accepted],
        "sent": None if action is None else [_message(m, m.key[1]) for m in action.sent],
        "acted_at": None if action is None else str(action.acted_at),
        "source": one.source,
        "before": one.before,
        "after": one.after,
        "sentence": None if one.verdict is None else one.verdict.sentence,
        "was_right": one.was_right,
        "problem": None if one.problem is None else str(one.problem),
    }


def _message(message: Any, other: str) -> dict[str, Any]:
    return {"with": other, "method": message.method, "args": message.args}


def _print(one: Blame, actions: int) -> None:
    from ray_snapshot.views import tables

    if one.action is None:
        text = f"no action breaks it, of {actions}"
        if one.problem is not None:
            text = f"cannot be told: not broken by the first {one.done} actions, and then: {one.problem}"
        elif not one.was_right:
            text = f"cannot be told: it was never right behind any of {actions} actions"
        print_text(tables.one_line(f"{one.detector}: {text}"))
        return
    action = one.action
    lines = [
        f"{one.detector}: broken by action {action.number} of {action.machine}, step {one.done} of {actions} in all",
        f"  {action.machine}.{action.method}{_given(action.accepted) if action.behind is None else _behind(action.behind)}",
        *([f"  at {one.source}"] if one.source else []),
        *([f"  state: {_text(one.before)} -> {_text(one.after)}"] if action.machine != "driver" else []),
        *(f"  sends {m.method}{_arguments(m.args)} to {m.key[1]}" for m in action.sent),
        f"  {'' if one.verdict is None else one.verdict.sentence}",
    ]
    for line in lines:
        print_text(tables.one_line(line))


def _given(accepted: Sequence[Any]) -> str:
    return "".join(f"{_arguments(m.args)} from {m.key[0]}" for m in accepted)


def _behind(wait: Any) -> str:
    """The wait behind which a step goes on."""
    return f", behind its wait at {wait.site} for {', '.join(call[1] for call in wait.calls)}"


def _arguments(args: Any) -> str:
    return f"({', '.join(_text(item) for item in args)})"


def _text(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 300 else f"{text[:300]}..."
