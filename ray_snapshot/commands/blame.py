"""`ray-snapshot blame HISTORY`: which action of a traced run broke what a detector found broken.

Exit codes: 0 if nothing breaks it, 1 if an action is named, 4 if the run cannot be done again as far as that.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ray_snapshot.commands.consent import Trust
from ray_snapshot.errors import SettingError
from ray_snapshot.views.wrapping import print_text

if TYPE_CHECKING:
    from ray_snapshot.history import History
    from ray_snapshot.verdicts import Detector
    from ray_snapshot.witness.blame import Blame

BROKEN, NOT_TOLD = 1, 4


def register(app: typer.Typer) -> None:
    """Add the command `blame` to the command line."""
    app.command("blame", context_settings={"ignore_unknown_options": True})(blame)  # -1 is no option


def blame(
    history: Annotated[
        str,
        typer.Argument(
            metavar="HISTORY", help="The folder of the history, or its address in a store.", show_default=False
        ),
    ],
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
    module: Annotated[
        list[str] | None,
        typer.Option(
            help="A module, or Python file, that defines machines of the run: its code is run. May be repeated."
        ),
    ] = None,
    trust: Trust = False,
) -> int:
    """Name the first action of a traced run behind which something is wrong: machine, method, arguments, source line.

    The system must have run with `trace=True`. Its machines' code is run: name its modules with `--module`, or say
    `--trust` if you trust whoever wrote the history.
    """
    from ray_snapshot.commands.witness import consented, importable, log_of_run, module_name
    from ray_snapshot.history import History
    from ray_snapshot.views import tables

    os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")  # an action that is done again must not start a cluster
    opened = History(history)
    run_id = opened.load(opened.resolve(snapshot)).run_id
    log, problem = log_of_run(opened, run_id)
    if log is None:
        print_text(tables.one_line(f"cannot be told: the trace cannot be followed: {problem}"))
        return NOT_TOLD
    named = [module_name(name) for name in module or ()]
    modules = [*named, *consented(log, None, named, trust, history)]
    found: list[Blame] = []
    with redirect_stdout(sys.stderr), importable(module or (), modules):  # what machines print is no part of the answer
        from ray_snapshot.witness.blame import blame as blamed

        for item in _detectors(opened, run_id, detector, trust):
            found.append(blamed(run_id, log, item, modules))
    for one in found:
        tables.print_json(_row(one)) if as_json else _print(one, len(log.actions))
    if any(one.action is not None for one in found):
        return BROKEN
    return NOT_TOLD if any(one.problem is not None or not one.was_right for one in found) else 0


def _detectors(history: History, run_id: str, asked: str | None, trust: bool) -> Iterator[Detector]:
    """The detector asked for, or all that have alarmed in the run, by what the history has of them."""
    from ray_snapshot.detectors import from_spec
    from ray_snapshot.verdicts import load_detector

    if asked is not None and ":" in asked:
        sys.path.insert(0, os.getcwd())
        yield load_detector(asked)
        return
    specs = {
        row.detector: row.detector_spec
        for row in history.verdicts()
        if row.run_id == run_id and (row.detector == asked if asked is not None else row.alarm)
    }
    if not specs:
        what = (
            "no detector has alarmed in this run" if asked is None else f"no detector {asked!r} was asked in this run"
        )
        raise SettingError(f"{what}: name one with --detector MODULE:NAME")
    usable = {name: spec for name, spec in specs.items() if spec and (trust or _type(spec) != "callable")}
    usable = {name: spec for name, spec in usable.items() if asked is not None or _type(spec) not in _WHO_WAITS}
    if not usable:
        raise SettingError(
            f"{', '.join(sorted(specs))}: nothing to blame an action for, or code that only the history names: name a"
            " detector with --detector MODULE:NAME, or say --trust if you trust whoever wrote the history"
        )
    for name in sorted(usable):
        yield from_spec(_data(usable[name]))


_WHO_WAITS = ("termination", "deadlock", "orphaned-wait", "garbage")


def _data(spec: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(spec) if isinstance(spec, str) else dict(spec)
    return found


def _type(spec: Any) -> Any:
    return _data(spec).get("type")


def _row(one: Blame) -> dict[str, Any]:
    action = one.action
    return {
        "detector": one.detector,
        "actions": one.done,
        "machine": None if action is None else action.machine,
        "number": None if action is None else action.number,
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
        f"{one.detector}: broken by action {action.number} of {action.machine}, the {one.done}th of {actions} in all",
        f"  {action.machine}.{action.method}{_given(action.accepted)}",
        *([f"  at {one.source}"] if one.source else []),
        *([f"  state: {_text(one.before)} -> {_text(one.after)}"] if action.machine != "driver" else []),
        *(f"  sends {m.method}{_arguments(m.args)} to {m.key[1]}" for m in action.sent),
        f"  {'' if one.verdict is None else one.verdict.sentence}",
    ]
    for line in lines:
        print_text(tables.one_line(line))


def _given(accepted: Sequence[Any]) -> str:
    return "".join(f"{_arguments(m.args)} from {m.key[0]}" for m in accepted)


def _arguments(args: Any) -> str:
    return f"({', '.join(_text(item) for item in args)})"


def _text(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 300 else f"{text[:300]}..."
