"""Options that several commands have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ray_snapshot.history import History

OnAlarm = Annotated[
    str | None,
    typer.Option(
        metavar="COMMAND|URL",
        help="Tell each alarm to this command, the report on its standard input, or post it to this address as JSON.",
    ),
]

HistoryPath = Annotated[
    str,
    typer.Argument(metavar="HISTORY", help="The folder of the history, or its address in a store.", show_default=False),
]
Crashes = Annotated[int, typer.Option("--crashes", min=0, help="So many machines may be lost at any moment.")]
RunModules = Annotated[
    list[str] | None,
    typer.Option(
        "--module",
        help="A module, or Python file, that defines machines of the run: its code is run. May be repeated.",
    ),
]


def open_history(path: str) -> History:
    """The history that is named. Raises `HistoryNotFoundError`, `HistoryFormatError`."""
    from ray_snapshot.history import History  # not for a --help

    return History(path)
