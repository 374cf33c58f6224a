"""`ray-snapshot analyze HISTORY JOB`: a Spark job over a history.

Imports neither Spark nor anything heavy: `ray_snapshot.spark_jobs.engine.command` does, once a job is really run.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ray_snapshot.spark_jobs import JOBS
from ray_snapshot.spark_jobs.engine.request import OPTIONS, Option, Request

_JOBS = "\n\n".join(f"{name}: {question}." for name, question in JOBS.items())


def register(app: typer.Typer, arguments: Sequence[str] = ()) -> None:
    """Add the command `analyze` to the command line; where a job and `--help` are among the arguments, as that job's alone."""
    job = next((word for word in arguments if word in JOBS), None) if "--help" in arguments else None
    told = _JOBS if job is None else f"{job}: {JOBS[job]}."
    analyze.__signature__ = _signature(job)  # type: ignore[attr-defined]  # typer makes its options of it
    app.command("analyze", help=f"Ask a history a question, in Spark.\n\n{told}")(analyze)


def analyze(**asked: Any) -> int:
    """Run one job and print its answer; exit code 1 if a detector failed on the way. Takes the fields of a `Request`."""
    from ray_snapshot.spark_jobs.engine.command import execute

    return execute(Request(**asked))


def _for_typer(option: Option, job: str | None) -> Any:
    told = option.help if job is None or len(option.jobs) == len(JOBS) else option.help.partition(": ")[2]
    told = told[0].upper() + told[1:]
    if not option.flag:
        return typer.Argument(help=told)
    return typer.Option(option.flag, help=told, metavar=option.metavar, min=option.least)


def _signature(job: str | None) -> inspect.Signature:
    """The fields of a `Request`, of all jobs or of one."""
    fields = inspect.signature(Request, eval_str=True)
    return fields.replace(
        parameters=[
            field.replace(annotation=Annotated[field.annotation, _for_typer(OPTIONS[field.name], job)])
            for field in fields.parameters.values()
            if job is None or job in OPTIONS[field.name].jobs
        ]
    )
