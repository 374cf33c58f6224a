"""What is asked of a Spark job: the one list of options.

`ray-snapshot analyze` has them all, the program of a job (`spark-submit traffic.py HISTORY`) those that the job takes: both
make their options of `Request`. Imports neither pyspark nor what reads a command line. Read `command.py` next.
"""

from __future__ import annotations

import dataclasses
import inspect
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, Literal

from ray_snapshot.spark_jobs import JOBS

TRUST = "Import the code that the history names: only if you trust whoever wrote it."


@dataclass(frozen=True, slots=True)
class Option:
    """How a field of `Request` is written and explained; one without a flag is told by its place."""

    flag: str
    help: str
    program: str | None = None
    """Its help in the program of a job, if it is told otherwise there."""
    takers: Literal["all", "own"] = "all"
    """All jobs; those whose `run` has a parameter of the field's name."""
    metavar: str | None = None
    least: float | None = None

    def is_taken(self, name: str, module: ModuleType) -> bool:
        """Whether a job takes the field of this name."""
        return self.takers == "all" or name in inspect.signature(module.run).parameters

    @property
    def jobs(self) -> tuple[str, ...]:
        """The jobs that take it: all, or those that its help begins with."""
        found = tuple(self.help.partition(": ")[0].split(", "))
        return found if JOBS.keys() >= {*found} else tuple(JOBS)

    def in_program(self) -> dict[str, str | None]:
        """How the program of a job explains it; it leaves the options that are its own to `docs/howto/spark.md`."""
        if self.takers == "own":
            return {"help": self.program}
        same = self.help.removeprefix("Only ").removesuffix(".")
        return {"help": self.program or same[0].lower() + same[1:], "metavar": self.metavar}


def _option(flag: str, help: str, program: str | None = None, *, default: Any = None, **more: Any) -> Any:
    return dataclasses.field(default=default, metadata={"option": Option(flag, help, program, **more)})


_own = partial(_option, takers="own")


@dataclass(slots=True)
class Request:
    """What somebody asks of a job; options that a job does not take are None, or False."""

    history: str = _option("", "The folder of the history.", default=dataclasses.MISSING)
    job: str = _option("", f"One of: {', '.join(JOBS)}.", default=dataclasses.MISSING)
    master: str | None = _option(
        "--master",
        "The Spark master; default: this machine.",
        "the Spark master; default: this machine, or as submitted",
    )
    system: str | None = _option("--system", "Only snapshots of this system.", "snapshots of this system only")
    run: str | None = _option(
        "--run",
        "Only snapshots of this run; as much of its id as is unique.",
        "snapshots of this run only; as much of its id as is unique",
    )
    since: str | None = _option("--from", "Only snapshots started at or after (ISO, UTC).", metavar="TIME")
    until: str | None = _option("--to", "Only snapshots started before (ISO, UTC).", metavar="TIME")
    out: str | None = _option("--out", "Where the Parquet results go; default: HISTORY/results/JOB.")
    json: bool = _option("--json", "One JSON object a line.", default=False)
    top: int = _option("--top", "How many rows to print.", "rows to print", default=20, least=1)
    detectors: list[str] | None = _own("--detector", "detections: one more detector, module:name.")  # noqa: RUF009 - a field
    state: str | None = _own("--state", "conservation: JSON path into the states, such as $.balance.")
    messages: list[str] | None = _own(  # noqa: RUF009 - a field
        "--message", "conservation: METHOD=PATH into the arguments, such as 'deposit=$[0]'."
    )
    total: float | None = _own("--total", "conservation: the sum that must stay; what is not given is as stored.")
    machine: str | None = _own("--machine", "changes: only of this machine.")
    field: str | None = _own("--field", "changes: only of this field of the states.")
    value: str | None = _own("--value", "changes: only to this value (with --field).")
    predicate: str | None = _own(
        "--predicate", "possibly: module:name of a function of the machines, functions by machine, or a detector."
    )
    modules: list[str] | None = _own(  # noqa: RUF009 - a field
        "--module", "possibly: a module that defines machines of the runs: its code is run."
    )
    most_cuts: int | None = _own("--most-cuts", "possibly: look at so many cuts of a run; default: 100,000.", least=1)
    definitely: bool | None = _own("--definitely", "possibly: ask whether each run must have passed such a moment.")
    trust: bool | None = _own("--trust", f"detections, possibly: {TRUST[0].lower()}{TRUST[1:]}", TRUST)


OPTIONS: dict[str, Option] = {one.name: one.metadata["option"] for one in dataclasses.fields(Request)}
"""By the field of `Request`, in the order of `analyze --help`."""
