"""An incident, from the first symptom to the cause, by an engineer who was not there: five questions to a history.

The bank's night shift left a note: "money is missing since some time, and transfers hang". There is a history of the night,
made up here with `ray_snapshot.synth` so that the answer is known: a run that went well, and the one with the incident. Each
step asks one Spark job what the answer before made necessary, and ends with what is known by then.

What to look at: no step searches for its answer by eye. The jobs say in which snapshot the sum broke, and which account
changed without having sent or accepted anything; which deadlock there is, which call closed it at which line, and how long
it took to be reported.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray_snapshot as rs
from ray_snapshot.errors import RaySnapshotError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MACHINES, SNAPSHOTS = 300, 60

Say = Callable[[str], None]


def make_history(folder: Path) -> rs.History:
    """A good night and a bad one: in the second an account leaks, and four others call each other into a deadlock."""
    from ray_snapshot.synth import Settings, synthesise

    synthesise(folder, Settings(MACHINES, SNAPSHOTS, (), seed=1, system="bank"))
    later = rs.History(folder).snapshots()[-1].started_at.replace(hour=1)
    synthesise(folder, Settings(MACHINES, SNAPSHOTS, ("leak", "deadlock"), seed=2, system="bank", started_at=later))
    return rs.History(folder)


@dataclass
class Inquiry:
    """Where an investigation stands."""

    spark: SparkSession
    history: rs.History
    chosen: Any
    """The bad night: a `Selection`."""
    say: Say
    found: dict[str, Any] = field(default_factory=dict)

    def ask(self, job: Any, **options: Any) -> dict[str, Any]:
        """The results of a Spark job over the bad night."""
        frames: dict[str, Any] = job.run(self.spark, self.history, selection=self.chosen, **options)
        return frames


def investigate(spark: SparkSession, history: rs.History, say: Say = print) -> dict[str, Any]:
    """Ask one job after the other; returns what was found."""
    from ray_snapshot.spark_jobs.tables import Selection

    bad = history.snapshots("bank")[-1].run_id
    inquiry = Inquiry(spark, history, Selection(system="bank", run=bad), say)
    for step in (_since_when, _which_account, _what_changed, _which_deadlock, _what_else):
        inquiry.found |= step(inquiry)
    found = inquiry.found
    say(
        f"Cause: between two snapshots {found['account']} lost {-found['missing']:g} without sending or accepting anything:"
        " look at what its class does on its own. Beside it, and later,"
        f" {found['first_site']} and {found['last_site']} wait for each other in a circle of calls."
    )
    return found


def _since_when(inquiry: Inquiry) -> dict[str, Any]:
    from ray_snapshot.spark_jobs import detections

    rows = inquiry.ask(detections)["detectors"].toArrow().to_pylist()
    alarms = {row["detector"]: row["alarms"] for row in rows if row["alarms"]}
    listed = ", ".join(f"{name} on {count} snapshots" for name, count in sorted(alarms.items()))
    inquiry.say(f"1. detections: who would have called? {listed}")
    return {"alarms": alarms}


def _which_account(inquiry: Inquiry) -> dict[str, Any]:
    from ray_snapshot.spark_jobs import conservation

    frames = inquiry.ask(conservation)
    (broken,) = frames["breaks"].toArrow().to_pylist()
    (account,) = frames["changed_machines"].where("unexplained").toArrow().to_pylist()
    inquiry.say(
        f"2. conservation: {broken['difference']:g} since {broken['first_broken']}; there {account['machine']} went from"
        f" {account['before']:g} to {account['after']:g}, having sent {account['sent']} and accepted {account['accepted']}"
    )
    ends = {"last_right": broken["last_right"], "first_broken": broken["first_broken"]}
    return {"account": account["machine"], "missing": broken["difference"], **ends}


def _what_changed(inquiry: Inquiry) -> dict[str, Any]:
    from ray_snapshot.questions import diff

    ends = inquiry.found["last_right"], inquiry.found["first_broken"]
    rows = diff(inquiry.history, *ends, machine=inquiry.found["account"])["changes"].to_pylist()
    listed = ", ".join(f"{row['field']} {row['before']} -> {row['after']}" for row in rows)
    inquiry.say(
        f"3. diff: what else changed in {inquiry.found['account']} there? {listed}: its balance, and nothing that was done"
    )
    return {"fields": [row["field"] for row in rows]}


def _which_deadlock(inquiry: Inquiry) -> dict[str, Any]:
    from ray_snapshot.spark_jobs import deadlocks

    frames = inquiry.ask(deadlocks)
    (one,) = frames["deadlocks"].toArrow().to_pylist()
    edges = frames["edges"].orderBy("step").toArrow().to_pylist()
    inquiry.say(
        f"4. deadlocks: {one['members']}, reported {one['seconds_to_report']:.1f} s after it closed. How it formed:"
    )
    for edge in edges:
        inquiry.say(f"     {edge['waiting_since']:%H:%M:%S} {edge['machine']} in {edge['method']} ({edge['call_site']})"
            f" waits for {edge['on_machine']}")  # fmt: skip
    sites = {"first_site": edges[0]["call_site"], "last_site": edges[-1]["call_site"]}
    return {"members": one["machines"], "closed_by": edges[-1]["machine"], **sites}


def _what_else(inquiry: Inquiry) -> dict[str, Any]:
    from ray_snapshot.spark_jobs import progress

    (run,) = inquiry.ask(progress)["runs"].toArrow().to_pylist()
    failed = sum(bool(problems) for _, problems in inquiry.history.verify())
    inquiry.say(
        f"5. progress and verify: the others went on ({run['ended']} to the end); {failed or 'no'} snapshots are torn:"
        " the evidence can be trusted"
    )
    return {"ended": run["ended"], "failed": failed}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="From the first symptom to the cause, by Spark jobs over a history.")
    parser.add_argument("--history", metavar="DIR", help="keep the made-up history there")
    parser.add_argument("--json", action="store_true", help="print what was found as one JSON object")
    options = parser.parse_args(argv)
    try:
        from ray_snapshot.spark_jobs.session import spark_session

        with tempfile.TemporaryDirectory() as temporary:
            history = make_history(Path(options.history or temporary) / "bank")
            spark = spark_session(brief=True)
            found = investigate(spark, history, (lambda _: None) if options.json else print)
            spark.stop()
    except RaySnapshotError as error:
        parser.error(str(error))
    if options.json:
        print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
