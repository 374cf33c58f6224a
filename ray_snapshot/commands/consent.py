"""Whether the user wants code to run that a history names: by `--trust`, or asked once on a terminal.

A history may be a stranger's file. Reading executes nothing; where a command could do more by importing what the history
names, it asks here first. In a pipe or a script there is no user to ask, and the answer is no.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import Annotated

import typer

from ray_snapshot import names
from ray_snapshot.spark_jobs.engine.request import TRUST

Trust = Annotated[bool, typer.Option("--trust", help=TRUST)]
_MOST_NAMED = 10


def is_given(trust: bool, named: Collection[str], history: str) -> bool:
    """Whether the code of these names, which stand in the history alone, may be imported and run."""
    if trust or not named:
        return trust
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    return typer.confirm(
        f"{history} names code that would be imported and run: {listed(named)}. Do you trust it?", err=True
    )


def listed(named: Collection[str]) -> str:
    """Names from a history, for a person: few, and without control characters."""
    from ray_snapshot.views.tables import one_line

    return one_line(names.listed((name[:200] for name in sorted(named)), most=_MOST_NAMED))
