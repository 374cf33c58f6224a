"""`ray-snapshot analyze HISTORY JOB`: a Spark job over a history.

Imports neither Spark nor anything heavy: `ray_snapshot.spark_jobs.engine.command` does, once a job is really run.
"""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

from ray_snapshot.spark_jobs import JOBS
from ray_snapshot.spark_jobs.engine.request import OPTIONS, Option, Request

_JOBS = "\n\n".join(f"{name}: {question}." for name, question in JOBS.items())


def register(app: typer.Typer) -> None:
    """Add the command `analyze` to the command line."""
    app.command("analyze", help=f"Ask a history a question, in Spark.\n\n{_JOBS}")(analyze)


def analyze(**asked: Any) -> int:
    """Run one job and print its answer; exit code 1 if a detector failed on the way. Takes the fields of a `Request`."""
    from ray_snapshot.spark_jobs.engine.command import execute

    return execute(Request(**asked))


def _for_typer(option: Option) -> Any:
    if not option.flag:
        return typer.Argument(help=option.help)
    return typer.Option(option.flag, help=option.help, metavar=option.metavar, min=option.least)


_FIELDS = inspect.signature(Request, eval_str=True)
analyze.__signature__ = _FIELDS.replace(  # type: ignore[attr-defined]  # typer makes its options of it
    parameters=[
        field.replace(annotation=Annotated[field.annotation, _for_typer(OPTIONS[field.name])])
        for field in _FIELDS.parameters.values()
    ]
)
