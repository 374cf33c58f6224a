"""`ray-snapshot doctor`: what may be in the way on this machine, a line for each check, with the remedy."""

from __future__ import annotations

import os
import sys
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ray_snapshot.commands.visiting import visitor

if TYPE_CHECKING:
    from ray_snapshot.doctor.checks import Finding

HAS_PROBLEM = 1

_STATE_WIDTH = 7
_NAME_WIDTH = 16


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("doctor")(doctor)


def doctor(
    history: Annotated[
        str | None,
        typer.Argument(
            metavar="[HISTORY]", help="The folder of a history that is kept, or is to be.", show_default=False
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(help="The cluster's address, HOST:PORT; default: RAY_ADDRESS, or those on this machine."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> int:
    """Say what is in the way on this machine, and what to do.

    Exit code 1 if there is a problem.

    Ray, Java, py-spy, the history that is named, the token, and the clusters that run.
    """
    counts: Counter[str] = Counter()
    with visitor():
        from ray_snapshot.doctor.asking import Asking
        from ray_snapshot.doctor.looking import all_checks

        asking = Asking(all_checks(address, history))
        for finding in asking.findings():
            counts[finding.state] += 1
            _print(finding, json)
    if not json:
        print(_summary(counts))
    code = HAS_PROBLEM if counts["problem"] else 0
    if asking.is_hanging:  # the end of Python would wait for it
        sys.stdout.flush()
        os._exit(code)
    return code


def _print(finding: Finding, json: bool) -> None:
    from ray_snapshot.views.tables import one_line, print_json
    from ray_snapshot.wrapping import room_on, wrapped

    if json:
        print_json(asdict(finding))
        return
    head = f"{finding.state.ljust(_STATE_WIDTH)}  {finding.check.ljust(_NAME_WIDTH)}  "
    remedy = f"; to do: {finding.remedy}" if finding.remedy else ""
    for line in wrapped(one_line(f"{head}{finding.found}{remedy}"), room_on(sys.stdout), hanging=len(head)):
        print(line, flush=True)


def _summary(counts: Counter[str]) -> str:
    told = [f"{counts[state]} {state}{'s' * (counts[state] > 1)}" for state in ("problem", "warning") if counts[state]]
    return ", ".join(told) or "all is well"
