"""`serve --on-alarm`: the alarms of everything that is served, told as they begin and end, whether a page is open or not.

What runs is asked as for a page; a history is read as it grows. Of a system that runs, the alarms that stand when it is first
seen are told; of a history none that it has already.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

from ray_snapshot.alarms import Notifier, alarm_of
from ray_snapshot.glances import MOST_SENTENCE, Glance
from ray_snapshot.json_text import parsed_json
from ray_snapshot.news import News, cores_of
from ray_snapshot.reports.texts import plain
from ray_snapshot.stderr import say
from ray_snapshot.verdicts import Verdict
from ray_snapshot.web import reading
from ray_snapshot.web.served import Place, Served

LOOK_S = 2.0
LAST_LOOK_S = 10.0
"""So long a look that is under way may take when all ends."""
MOST_RUNS = 1_000
MOST_BEHIND = 1_000
"""So many of a history's last snapshots are looked at for new verdicts."""
LIVE = "live"
"""Who evaluates while a system runs; what a later analysis finds in old snapshots is no news."""


class _Run:
    """What is known of one run, wherever it was heard."""

    def __init__(self) -> None:
        self.news = News(lambda _: True)
        self.heard: dict[str, int] = {}
        """By detector: the number of the last snapshot that it has judged."""
        self.floor = -1
        """What was said of earlier snapshots is no news."""
        self.was_seen = False
        """Whether it was seen while it ran."""
        self.was_told = False
        """Whether anything of it was told: what a history has from before is not."""

    def begin(self, number: int) -> None:
        """It is seen running: what stands now is news, unless it was told, and what was before is none."""
        self.was_seen = True
        if not self.was_told:
            self.news, self.floor = News(lambda _: True), number - 1
            self.heard.clear()

    def has_heard(self, detector: str, number: int) -> bool:
        """Whether this is known; from now on it is."""
        last = self.heard.get(detector, self.floor)
        self.heard[detector] = max(number, last)
        return number <= last

    def is_news(self, detector: str, holds: bool | None, *, is_alarm: bool, cores: Iterable[frozenset[str]]) -> bool:
        """Whether an alarm begins, or ends."""
        return self.news.is_new(detector, None if holds is None else is_alarm, cores)


@dataclass
class _Read:
    """How far a history has been read."""

    commit: Any = None
    known: frozenset[tuple[str, str]] | None = None
    """(snapshot, detector) of the verdicts of its last snapshots; None: it was never read to its end."""


class Alarms:
    """A thread that looks at all that is served, and tells of alarms."""

    def __init__(self, served: Served, notifier: Notifier) -> None:
        self.served = served
        self.notifier = notifier
        self._runs: OrderedDict[tuple[str, str], _Run] = OrderedDict()
        self._reads: dict[str, _Read] = {}
        """By history."""
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
            self._thread.join(LAST_LOOK_S)
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
            self._troubles.discard(what)
        except Exception as error:  # whatever a stranger's history does: the others are looked at
            if what not in self._troubles:
                self._troubles.add(what)
                say(f"ray-snapshot: alarms of {what}: {plain(error)}")

    def _run(self, system: str, run_id: str) -> _Run:
        """What is known of this run."""
        key = system, run_id
        found = self._runs.setdefault(key, _Run())
        self._runs.move_to_end(key)
        if len(self._runs) > MOST_RUNS:
            self._runs.popitem(last=False)
        return found

    # ---- what runs ----------------------------------------------------------------------------------------------------

    def _hear(self, glances: Iterable[Glance], history: str | None) -> None:
        found = [one for one in glances if one.words]  # of a snapshot that was given up nothing is said
        if not found:
            return
        last = found[-1].row
        run = self._run(str(last["system"]), str(last["run_id"]))
        if not run.was_seen:
            run.begin(int(last["sequence"]))
        for glance in found:
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
        read = self._reads.setdefault(place.key, _Read())
        commit = reading.commits(place, "verdicts"), reading.commits(place, "snapshots")
        if read.commit == commit:
            return
        snapshots = reading.snapshot_rows(self.served, place).select(["snapshot_id", "system", "run_id", "sequence"])
        snapshots = snapshots.slice(max(0, snapshots.num_rows - MOST_BEHIND))
        of = {row["snapshot_id"]: row for row in snapshots.to_pylist()}
        columns = ["snapshot_id", "detector", "evaluator", "holds", "alarm", "sentence"]
        said = place.history.rows_of("verdicts", list(of), columns)
        rows = said.filter(pc.equal(said["evaluator"], LIVE)).to_pylist()
        for row in sorted(rows, key=lambda row: (of[row["snapshot_id"]]["sequence"], str(row["detector"]))):
            if (row["snapshot_id"], str(row["detector"])) not in (read.known or ()):
                self._take(place, row, of[row["snapshot_id"]], is_told=read.known is not None)
        read.known = frozenset((row["snapshot_id"], str(row["detector"])) for row in rows)
        read.commit = commit

    def _take(self, place: Place, row: Mapping[str, Any], about: Mapping[str, Any], *, is_told: bool) -> None:
        """A verdict that the history did not have when it was last read; `is_told`: whether it was read before."""
        run = self._run(str(about["system"]), str(about["run_id"]))
        detector, is_alarm = str(row["detector"]), bool(row["alarm"])
        if run.has_heard(detector, int(about["sequence"])):
            return
        evidence = self._evidence(place, row) if is_alarm else {}
        if not run.is_news(detector, row["holds"], is_alarm=is_alarm, cores=cores_of(evidence)) or not is_told:
            return
        verdict = Verdict(
            detector=detector,
            holds=row["holds"],
            alarm=is_alarm,
            evidence=evidence,
            sentence=str(row["sentence"] or "")[:MOST_SENTENCE],
            snapshot_id=str(row["snapshot_id"]),
            run_id=str(about["run_id"]),
        )
        run.was_told = True
        self.notifier.tell(alarm_of(verdict, str(about["system"]), str(place.history.path)))

    def _evidence(self, place: Place, row: Mapping[str, Any]) -> dict[str, Any]:
        """What an alarm rests on."""
        columns = ["evaluator", "evidence"]
        rows = place.history.rows_of("verdicts", [row["snapshot_id"]], columns, where={"detector": row["detector"]})
        told = next((one["evidence"] for one in rows.to_pylist() if one["evaluator"] == LIVE), None)
        found = parsed_json(told) if told is not None else None
        return dict(found) if isinstance(found, Mapping) else {}
