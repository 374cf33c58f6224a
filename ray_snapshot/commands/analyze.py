"""`ray-snapshot analyze HISTORY JOB`: a Spark job over a history.

Imports neither Spark nor anything heavy: `ray_snapshot.spark_jobs.command` does, once a job is really run.
"""

from __future__ import annotations

from typing import Annotated

import typer

from ray_snapshot.commands.consent import TRUST
from ray_snapshot.spark_jobs import JOBS

_JOBS = "\n\n".join(f"{name}: {question}." for name, question in JOBS.items())


def register(app: typer.Typer) -> None:
    """Add the command `analyze` to the command line."""
    app.command("analyze", help=f"Ask a history a question, in Spark.\n\n{_JOBS}")(analyze)


def analyze(
    history: Annotated[str, typer.Argument(help="The folder of the history.")],
    job: Annotated[str, typer.Argument(help=f"One of: {', '.join(JOBS)}.")],
    master: Annotated[str | None, typer.Option(help="The Spark master; default: this machine.")] = None,
    system: Annotated[str | None, typer.Option(help="Only snapshots of this system.")] = None,
    run: Annotated[str | None, typer.Option(help="Only snapshots of this run; as much of its id as is unique.")] = None,
    since: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Only snapshots started at or after (ISO, UTC).")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="Only snapshots started before (ISO, UTC).")
    ] = None,
    out: Annotated[str | None, typer.Option(help="Where the Parquet results go; default: HISTORY/results/JOB.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    top: Annotated[int, typer.Option(min=1, help="How many rows to print.")] = 20,
    detector: Annotated[list[str] | None, typer.Option(help="detections: one more detector, module:name.")] = None,
    state: Annotated[
        str | None, typer.Option(help="conservation: JSON path into the states, such as $.balance.")
    ] = None,
    message: Annotated[
        list[str] | None, typer.Option(help="conservation: METHOD=PATH into the arguments, such as 'deposit=$[0]'.")
    ] = None,
    total: Annotated[
        float | None, typer.Option(help="conservation: the sum that must stay; what is not given is as stored.")
    ] = None,
    machine: Annotated[str | None, typer.Option(help="changes: only of this machine.")] = None,
    field: Annotated[str | None, typer.Option(help="changes: only of this field of the states.")] = None,
    value: Annotated[str | None, typer.Option(help="changes: only to this value (with --field).")] = None,
    between: Annotated[
        str | None, typer.Option(metavar="A..B", help="changes: between two snapshots (ids, or such as -2..-1).")
    ] = None,
    against: Annotated[str | None, typer.Option(help="compare: the run to hold against --run.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="detections, conservation: new snapshots as they come, each exactly once.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="With --follow: what is there now, and no more.")] = False,
    every: Annotated[float, typer.Option(min=0.1, help="With --follow: seconds between looks.")] = 10.0,
    trust: Annotated[bool, typer.Option("--trust", help=f"detections: {TRUST[0].lower()}{TRUST[1:]}")] = False,
) -> int:
    """Run one job and print its answer; exit code 1 if a detector failed on the way."""
    from ray_snapshot.spark_jobs.command import Request, execute

    return execute(
        job,
        Request(
            history=history,
            master=master,
            system=system,
            run=run,
            since=since,
            until=until,
            out=out,
            json=json,
            top=top,
            detectors=detector or [],
            state=state,
            messages=message or [],
            total=total,
            machine=machine,
            field=field,
            value=value,
            between=between,
            against=against,
            follow=follow,
            once=once,
            every=every,
            trust=trust or None,
        ),
    )
