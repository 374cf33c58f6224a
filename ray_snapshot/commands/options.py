"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

OnAlarm = Annotated[
    str | None,
    typer.Option(
        metavar="COMMAND|URL",
        help="Tell each alarm to this command, the report on its standard input, or post it to this address as JSON.",
    ),
]
