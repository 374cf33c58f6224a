"""What is asked of a Spark job: the one list of options, of which `ray-snapshot analyze` makes its own.

Imports neither pyspark nor what reads a command line. Read `command.py` next.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from ray_snapshot.spark_jobs import JOBS

TRUST = "Import the code that the history names: only if you trust whoever wrote it."


@dataclass(frozen=True, slots=True)
class Option:
    """How a field of `Request` is written and explained; one without a flag is told by its place."""

    flag: str
    help: str
    metavar: str | None = None
    least: float | None = None

    @property
    def jobs(self) -> tuple[str, ...]:
        """The jobs that take it: all, or those that its help begins with."""
        found = tuple(self.help.partition(": ")[0].split(", "))
        return found if JOBS.keys() >= {*found} else tuple(JOBS)


def _option(flag: str, help: str, *, default: Any = None, **more: Any) -> Any:
    return dataclasses.field(default=default, metadata={"option": Option(flag, help, **more)})


@dataclass(slots=True)
class Request:
    """What somebody asks of a job; options that a job does not take are None, or False."""

    history: str = _option("", "The folder of the history.", default=dataclasses.MISSING)
    job: str = _option("", f"One of: {', '.join(JOBS)}.", default=dataclasses.MISSING)
    master: str | None = _option("--master", "The Spark master; default: this machine, or as submitted.")
    system: str | None = _option("--system", "Only snapshots of this system.")
    run: str | None = _option("--run", "Only snapshots of this run; as much of its id as is unique.")
    since: str | None = _option("--from", "Only snapshots started at or after (ISO, UTC).", metavar="TIME")
    until: str | None = _option("--to", "Only snapshots started before (ISO, UTC).", metavar="TIME")
    out: str | None = _option("--out", "Where the Parquet results go; default: HISTORY/results/JOB.")
    json: bool = _option("--json", "One JSON object a line.", default=False)
    top: int = _option("--top", "How many rows to print.", default=20, least=1)
    detectors: list[str] | None = _option("--detector", "detections: one more detector, module:name.")  # noqa: RUF009 - a field
    state: str | None = _option("--state", "conservation: JSON path into the states, such as $.balance.")
    messages: list[str] | None = _option(  # noqa: RUF009 - a field
        "--message", "conservation: METHOD=PATH into the arguments, such as 'deposit=$[0]'."
    )
    total: float | None = _option("--total", "conservation: the sum that must stay; what is not given is as stored.")
    machine: str | None = _option("--machine", "changes: only of this machine.")
    field: str | None = _option("--field", "changes: only of this field of the states.")
    value: str | None = _option("--value", "changes: only to this value (with --field).")
    predicate: str | None = _option(
        "--predicate", "possibly: module:name of a function of the machines, functions by machine, or a detector."
    )
    modules: list[str] | None = _option(  # noqa: RUF009 - a field
        "--module", "possibly: a module that defines machines of the runs: its code is run."
    )
    most_cuts: int | None = _option(
        "--most-cuts", "possibly: look at so many cuts of a run; default: 100,000.", least=1
    )
    definitely: bool | None = _option("--definitely", "possibly: ask whether each run must have passed such a moment.")
    trust: bool | None = _option("--trust", f"detections, possibly: {TRUST[0].lower()}{TRUST[1:]}")


OPTIONS: dict[str, Option] = {one.name: one.metadata["option"] for one in dataclasses.fields(Request)}
"""By the field of `Request`, in the order of `analyze --help`."""
