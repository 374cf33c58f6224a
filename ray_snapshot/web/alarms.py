"""`serve --on-alarm`: the alarms of everything that is served, told as they begin and end, whether a page is open or not.

What runs is asked as for a page; a history is read as it grows. Of a system that runs, the alarms that stand when it is first
seen are told; of a history none that it has already.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow.compute as pc

from ray_snapshot.alarms import Notifier, alarm_of
from ray_snapshot.glances import MOST_SENTENCE, Glance
from ray_snapshot.json_text import parsed_json
from ray_snapshot.news import News, cores_of
from ray_snapshot.reports.texts import names_in, plain, records
from ray_snapshot.verdicts import Verdict
from ray_snapshot.views.streams import say
from ray_snapshot.web import reading
from ray_snapshot.web.served import Place, Served

LOOK_S = 2.0
MOST_RUNS = 1_000
MOST_BEHIND = 1_000
"""So many of a history's last snapshots are looked at for new verdicts."""
LIVE = "live"
"""Who evaluates while a system runs; what a later analysis finds in old snapshots is no news."""


@dataclass
class _Run:
    """What is known of one run, wherever it was heard."""

    heard: dict[str, int] = field(default_factory=dict)
    """By detector: the number of the last snapshot that it has judged."""
    news: News = field(init=False)

    def __post_init__(self) -> None:
        self.news = News(lambda _: True)

    def has_heard(self, detector: str, number: int) -> bool:
        """Whether this is known; from now on it is."""
        is_old = self.heard.get(detector, -1) >= number
        self.heard[detector] = max(number, self.heard.get(detector, -1))
        return is_old

    def is_news(self, detector: str, holds: bool | None, *, is_alarm: bool, cores: Iterable[frozenset[str]]) -> bool:
        """Whether an alarm begins, or ends."""
        return self.news.is_new(detector, None if holds is None else is_alarm, cores)


class Alarms:
    """A thread that looks at all that is served, and tells of alarms."""

    def __init__(self, served: Served, notifier: Notifier) -> None:
        self.served = served
        self.notifier = notifier
        self._runs: OrderedDict[tuple[str, str], _Run] = OrderedDict()
        self._commits: dict[str, Any] = {}
        """By history: of which commit its verdicts have been looked at."""
        self._troubles: set[str] = set()
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="ray-snapshot-looking", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Tell what has been seen, and end."""
        self._is_closed.set()
        if self._thread.is_alive():
            self._thread.join(LOOK_S)
        self.notifier.close()

    def _work(self) -> None:
        while not self._is_closed.is_set():
            self.look()
            self._is_closed.wait(LOOK_S)

    def look(self) -> None:
        """Look once at everything; what cannot be read is said once, and the rest is looked at."""
        for one in self.served.running():
            self._guarded(f"system {one.name}", lambda one=one: self._hear(one.glances, one.about.get("history")))
        for place in list(self.served.places.values()):
            self._guarded(f"history {place.key}", lambda place=place: self._read(place))

    def _guarded(self, what: str, work: Any) -> None:
        try:
            work()
        except Exception as error:  # whatever a stranger's history does: the others are looked at
            text = f"ray-snapshot: alarms of {what}: {plain(error)}"
            if text not in self._troubles and len(self._troubles) < MOST_RUNS:
                self._troubles.add(text)
                say(text)

    def _run(self, system: str, run_id: str) -> tuple[_Run, bool]:
        """What is known of this run, and whether anything was."""
        key = system, run_id
        is_known = key in self._runs
        found = self._runs.setdefault(key, _Run())
        self._runs.move_to_end(key)
        if len(self._runs) > MOST_RUNS:
            self._runs.popitem(last=False)
        return found, is_known

    # ---- what runs ----------------------------------------------------------------------------------------------------

    def _hear(self, glances: Sequence[Glance], history: str | None) -> None:
        found = list(glances)
        if not found:
            return
        last = found[-1].row
        run, is_known = self._run(str(last["system"]), str(last["run_id"]))
        for glance in found if is_known else found[-1:]:
            for word in glance.words:
                if run.has_heard(word.detector, int(glance.row["sequence"])):
                    continue
                if run.is_news(word.detector, word.holds, is_alarm=word.alarm, cores=word.cores):
                    verdict = Verdict(
                        detector=word.detector,
                        holds=word.holds,
                        alarm=word.alarm,
                        sentence=word.sentence,
                        snapshot_id=str(glance.row["snapshot_id"]),
                        run_id=str(glance.row["run_id"]),
                    )
                    self.notifier.tell(alarm_of(verdict, str(last["system"]), history, word.report))

    # ---- histories ----------------------------------------------------------------------------------------------------

    def _read(self, place: Place) -> None:
        commit = reading.commits(place, "verdicts"), reading.commits(place, "snapshots")
        if self._commits.get(place.key) == commit:
            return
        is_first = place.key not in self._commits
        self._commits[place.key] = commit
        snapshots = reading.snapshot_rows(self.served, place).select(["snapshot_id", "system", "run_id", "sequence"])
        snapshots = snapshots.slice(max(0, snapshots.num_rows - MOST_BEHIND))
        of = {row["snapshot_id"]: row for row in snapshots.to_pylist()}
        columns = ["snapshot_id", "detector", "evaluator", "holds", "alarm", "sentence"]
        said = place.history.rows_of("verdicts", list(of), columns)
        said = said.filter(pc.equal(said["evaluator"], LIVE))
        for row in sorted(said.to_pylist(), key=lambda row: (of[row["snapshot_id"]]["sequence"], row["detector"])):
            about = of[row["snapshot_id"]]
            run, _ = self._run(str(about["system"]), str(about["run_id"]))
            detector, is_alarm = str(row["detector"]), bool(row["alarm"])
            if run.has_heard(detector, int(about["sequence"])):
                continue
            evidence = self._evidence(place, row) if is_alarm else {}
            if run.is_news(detector, row["holds"], is_alarm=is_alarm, cores=cores_of(evidence)) and not is_first:
                verdict = Verdict(
                    detector=detector,
                    holds=row["holds"],
                    alarm=is_alarm,
                    evidence=evidence,
                    sentence=str(row["sentence"] or "")[:MOST_SENTENCE],
                    snapshot_id=str(row["snapshot_id"]),
                    run_id=str(about["run_id"]),
                )
                self.notifier.tell(alarm_of(verdict, str(about["system"]), str(place.history.path)))

    def _evidence(self, place: Place, row: dict[str, Any]) -> dict[str, Any]:
        """What an alarm rests on, as far as its report reads it: a history may hold anything."""
        columns = ["detector", "evaluator", "evidence"]
        rows = place.history.rows_of("verdicts", [row["snapshot_id"]], columns, where={"detector": row["detector"]})
        told = next((one["evidence"] for one in rows.to_pylist() if one["evaluator"] == LIVE), None)
        evidence = parsed_json(told) if told is not None else None
        if not isinstance(evidence, Mapping):
            return {}
        return {
            "members": records(evidence.get("members")),
            "stuck_behind": records(evidence.get("stuck_behind")),
            "advice": names_in(evidence, "advice"),
            "cores": evidence.get("cores"),
        } | {key: value for key in _COUNTS if type(value := evidence.get(key)) is int}


_COUNTS = ("member_count", "stuck_behind_count")
