"""`ray-snapshot run`: a script or module as it is, watched."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from ray_snapshot.commands.options import OnAlarm
from ray_snapshot.names import OnDeadlock


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True},
        help="Run a Ray program as it is, and say why it hangs.\n\nA snapshot is taken every second.",
    )(run)


def run(
    program: Annotated[
        list[str], typer.Argument(metavar="(SCRIPT | -m MODULE) [ARGS]...", help="The program and its arguments.")
    ],
    every: Annotated[
        str,
        typer.Option(
            metavar="SECONDS|PERCENT", help="Seconds between snapshots, or a share of processor time for them, like 1%."
        ),
    ] = "1",
    history: Annotated[
        str | None, typer.Option(metavar="HISTORY", help="Keep a history in this folder, or at s3://BUCKET/PATH.")
    ] = None,
    shared_history: Annotated[
        bool,
        typer.Option("--shared-history", help="The folder of the history is the same on all nodes of the cluster."),
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(
            help="Write a report into this folder when an alarm begins, and at the end; a history is kept in its history/."
        ),
    ] = None,
    detect: Annotated[
        str, typer.Option(help="Detectors, with commas: names, or module:name.")
    ] = "deadlock,infeasible,restarting,collective,stall",
    exit_on: Annotated[
        str | None,
        typer.Option(help="End the program with exit code 3 when this detector holds; suspected: when a deadlock is."),
    ] = None,
    on_deadlock: Annotated[
        OnDeadlock,
        typer.Option(
            help="When a deadlock stands: only report it, raise DeadlockError in the program, or exit with code 3."
        ),
    ] = "report",
    deadlock_grace: Annotated[
        float, typer.Option(min=0, help="So many seconds a deadlock must stand before --on-deadlock does anything.")
    ] = 10.0,
    victim: Annotated[
        Literal["youngest"] | None,
        typer.Option(help="Raise in place of the program inside one call of the deadlock: the one that began last."),
    ] = None,
    on_alarm: OnAlarm = None,
    stalled: Annotated[
        float, typer.Option(min=1, help="Say so once nothing has moved for so many seconds, and no reason is known.")
    ] = 120.0,
    patience: Annotated[
        float, typer.Option(min=0, help="So many seconds a deadlock must be suspected before --exit-on suspected acts.")
    ] = 60.0,
    library_states: Annotated[
        bool, typer.Option("--library-states", help="Record the states of actors of Ray's own libraries, too.")
    ] = False,
    name: Annotated[str | None, typer.Option(help="The system's name (default: from the program's).")] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Say nothing but alarms and troubles: not how to look, nor how it ended.")
    ] = False,
) -> int:
    """The command `run`; `register` has its help text."""
    from ray_snapshot.instrument.running import Options, run_program
    from ray_snapshot.pace import LEAST_S, every_of

    wanted = [item.strip() for item in detect.split(",") if item.strip()]
    needed = "deadlock" if exit_on == "suspected" else exit_on
    if needed is not None and needed not in wanted:
        wanted.append(needed)
    options = Options(
        every=every_of(every, LEAST_S),
        history=history,
        shared_history=shared_history,
        detectors=wanted,
        exit_on=exit_on,
        name=name,
        library_states=library_states,
        on_deadlock=on_deadlock,
        deadlock_grace=deadlock_grace,
        victim=victim,
        report=report,
        on_alarm=on_alarm,
        stalled=stalled,
        patience=patience,
        quiet=quiet,
    )
    return run_program(_split(program), options)


def _split(program: list[str]) -> tuple[str | None, str | None, list[str]]:
    """(script, module, arguments)."""
    from ray_snapshot.errors import SettingError

    if program[0] != "-m":
        return program[0], None, program[1:]
    if len(program) < 2:
        raise SettingError("run -m: name a module behind it")
    return None, program[1], program[2:]
