"""`ray-snapshot restore HISTORY SNAPSHOT SCRIPT [ARGS]`: run a program whose system goes on from a snapshot.

Exit codes: the program's own, or 2 for an error, up to the moment in which the system goes on.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ray_snapshot.errors import RaySnapshotError, SettingError

if TYPE_CHECKING:
    from ray_snapshot.history import History
    from ray_snapshot.runtime.restoring import Wanted


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True},
        help="Run a program that goes on from a recorded snapshot.\n\nIts system begins there, on a new cluster.",
    )(restore)


def restore(
    history: Annotated[
        str, typer.Argument(metavar="HISTORY", help="The folder of the history, or its address in a store.")
    ],
    snapshot: Annotated[
        str, typer.Argument(metavar="SNAPSHOT", help="An id, its beginning, latest (that can be), -1, ...")
    ],
    program: Annotated[list[str], typer.Argument(metavar="SCRIPT [ARGS]...", help="The program and its arguments.")],
    hosts: Annotated[
        int | None, typer.Option(min=1, help="On so many hosts (default: as the program spawns).", show_default=False)
    ] = None,
) -> int:
    """The command `restore`; `register` has its help text."""
    from ray_snapshot.history import History
    from ray_snapshot.instrument.running import run_script
    from ray_snapshot.runtime.restoring import want

    found = _wanted(History(history), snapshot, hosts)
    want(found)
    code = run_script(program[0], program[1:], lambda error: isinstance(error, RaySnapshotError) and not found.is_done)
    if not found.is_done and not code:
        what = "never called start() on it" if found.is_taken else "never opened it"
        raise SettingError(
            f"{program[0]} ended, and nothing was restored: the snapshot is of system {found.system!r}, and the program {what}"
        )
    return code


def _wanted(history: History, snapshot: str, hosts: int | None) -> Wanted:
    """What the program is to go on from; raises `NotRestorableError` with the obstacles, `CheckpointError`."""
    from ray_snapshot.history import checkpoints, restorable
    from ray_snapshot.runtime.restoring import Wanted
    from ray_snapshot.views.tables import one_line

    snapshot_id = _chosen(history, snapshot)
    found = history.load(snapshot_id)
    restorable.check(history, found)
    if isinstance(edit := found.coverage.get("edited"), dict):
        origin = one_line(str(edit.get("from")))
        print(f"ray-snapshot: {snapshot_id} was edited: it is made from {origin}", file=sys.stderr)
    checkpoints.read(history.path, snapshot_id, checkpoints.checkpoint_key(is_made=False))
    born = [message.target for message in found.messages if message.method == "__init__" and message.number == 0]
    names = {*(name for name, machine in found.machines.items() if machine.host != "driver"), *born}
    return Wanted(found.system, snapshot_id, str(history.path), names, hosts)


def _chosen(history: History, text: str) -> str:
    """The id that is meant; `latest` is the latest that can be restored, and says so if others came behind it."""
    if text != "latest" or not (restorable := history.restorable()):
        return history.resolve(text)
    if (latest := history.resolve(text)) != restorable[-1]:
        print(
            f"ray-snapshot: going on from {restorable[-1]}, the latest that can be restored; {latest} came later, and cannot:"
            " see `ray-snapshot history show`",
            file=sys.stderr,
        )
    return restorable[-1]
