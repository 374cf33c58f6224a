"""`ray-snapshot restore HISTORY SNAPSHOT SCRIPT [ARGS]`: run a program whose system goes on from a snapshot.

Exit codes: the program's own, or 2 for an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ray_snapshot.errors import NotRestorableError, SettingError

if TYPE_CHECKING:
    from ray_snapshot.history import History
    from ray_snapshot.runtime.restoring import Wanted


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True},
        help="Run a program whose system goes on from a recorded snapshot, on a new cluster.",
    )(restore)


def restore(
    history: Annotated[str, typer.Argument(metavar="HISTORY", help="The folder of the history.")],
    snapshot: Annotated[str, typer.Argument(metavar="SNAPSHOT", help="An id, its beginning, latest, or -1, -2, ...")],
    program: Annotated[list[str], typer.Argument(metavar="SCRIPT [ARGS]...", help="The program and its arguments.")],
    hosts: Annotated[
        int | None, typer.Option(min=1, help="On so many hosts (default: as the program spawns).", show_default=False)
    ] = None,
) -> int:
    """See `register`."""
    from ray_snapshot.history import History
    from ray_snapshot.instrument.running import run_script
    from ray_snapshot.runtime.restoring import want

    found = _wanted(History(history), snapshot, hosts)
    want(found)
    code = run_script(program[0], program[1:])
    if not found.is_done and not code:
        what = "never called start() on it" if found.is_taken else "never opened it"
        raise SettingError(
            f"{program[0]} ended, and nothing was restored: the snapshot is of system {found.system!r}, and the program {what}"
        )
    return code


def _wanted(history: History, snapshot: str, hosts: int | None) -> Wanted:
    """What the program is to go on from; raises `NotRestorableError` with the obstacles."""
    from ray_snapshot.runtime.keeping import not_restorable
    from ray_snapshot.runtime.restoring import Wanted

    snapshot_id = history.resolve(snapshot)
    found = history.load(snapshot_id)
    if found.status != "complete":
        raise NotRestorableError(f"snapshot {snapshot_id} was given up: {found.abort_reason}", obstacles=[])
    if not found.restorable:
        raise not_restorable(snapshot_id, found.obstacles)
    born = [message.target for message in found.messages if message.method == "__init__" and message.number == 0]
    names = {*(name for name, machine in found.machines.items() if machine.host != "driver"), *born}
    return Wanted(found.system, snapshot_id, str(history.path), names, hosts)
