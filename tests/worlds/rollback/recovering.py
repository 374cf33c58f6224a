"""What a recovering system goes back to, step by step: `protocol/recovery_line.py` between parties that die.

A driver that sends numbered messages, a host that accepts them, the service and the analyst. A snapshot is an instant (that
it is a consistent cut, other worlds show): it holds what is in effect when the driver records, accepted or in flight. A
rollback is told to the driver in two commands, stop and load; the host stops and loads with it (`rolling_back` has them one by
one).

What one party tells another comes in order; between different pairs anything overtakes anything. The analyst's answers to the
service come in any order. A process that dies loses what it was told and what it knew; what it has told others and has not come
comes all the same, or is lost: both are tried, and with the moments of a death each part of it. Imports the standard library
only.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from ray_snapshot.protocol.recovery_line import (
    Agreement,
    Allowance,
    Base,
    DriverLine,
    KeptSnapshot,
    ServiceLine,
    newest,
    outside,
    sent_again,
)
from worlds.rollback.recovering_parties import (
    BLOCK,
    FIRST,
    GENERATIONS,
    NOBODY,
    Analyst,
    Driver,
    Script,
    Service,
    Step,
    name_of,
)
from worlds.rollback.recovery_oracle import Truth, check


class RecoveringWorld:
    """A driver, services and analysts that die. It begins with snapshot 1, on which all agree."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.left = {"message": script.messages, "snapshot": script.snapshots, "restore": script.restores}
        self.deaths = list(script.deaths)
        self.hiccups = script.hiccups
        self.truth = Truth()
        self.truth.gave(FIRST)
        self.truth.contents[FIRST] = ()
        self.truth.promise(FIRST)
        copy = None if script.has_history else FIRST
        base = Base(name_of(FIRST), FIRST, copy)
        self.driver = Driver(DriverLine(keeps_copy=not script.has_history, block=BLOCK, numbers=BLOCK, base=base))
        line = ServiceLine()
        line.went_back(name_of(FIRST), FIRST)
        self.service: Service | None = Service(0, 0, FIRST, line, Allowance(is_bounded=True, block=BLOCK))
        self.analyst: Analyst | None = Analyst([FIRST])
        self.analyst.retention.pin(name_of(FIRST))
        self.history = {FIRST} if script.has_history else set()
        self.host: tuple[int, tuple[int, ...]] = 0, ()
        """(generation, messages in effect)."""
        self.to_host: list[tuple[int, int]] = []
        self.log: list[Step] = []
        """Commands of the service to the driver."""
        self.to_service: list[Step] = []
        """From the driver."""
        self.to_analyst: list[Step] = []
        """From the service."""
        self.answers: list[tuple[int, int]] = []
        """Of the analyst, to the service: (number, generation) of what is kept."""
        self.lending: int | None = None
        """What the driver wants a copy of."""
        self.copy: tuple[int, int | None] | None = None
        """(life of the analyst, copy or None): the answer, on its way."""
        self.seeking: int | None = None
        """What the driver wants a copy of, for the program wants to have it restored."""
        self.seek_copy: tuple[int, int, bool] | None = None
        """(life of the analyst, number, whether there is a copy): the answer, on its way."""
        self.agreement: bool | None = None
        """The service's answer to the driver, on its way."""
        self.is_unanswered = False
        """Whether the driver will hear, instead of an answer, that there is none."""
        self.recollection: tuple[int, int, Base] | None = None
        """What the next life of the service is told: (life, numbers, base)."""

    def fingerprint(self) -> Hashable:
        """A value that is equal exactly for states that behave alike and are judged alike."""
        recollection = self.recollection and (*self.recollection[:2], self.recollection[2].number)
        return (
            tuple(self.left.values()), tuple(self.deaths), self.hiccups, self.truth.fingerprint(),
            self.driver.fingerprint(), self.service and self.service.fingerprint(),
            self.analyst and self.analyst.fingerprint(), tuple(sorted(self.history)), self.host, tuple(self.to_host),
            tuple(self.log), tuple(self.to_service), tuple(self.to_analyst), tuple(sorted(self.answers)), self.lending,
            self.copy, self.seeking, self.seek_copy, self.agreement, self.is_unanswered, recollection,
        )  # fmt: skip

    # ---- steps ----------------------------------------------------------------------------------------------------

    def enabled(self) -> list[Step]:
        """What happens by itself, or because the program does something."""
        driver, service = self.driver, self.service
        found: list[Step] = []
        if self.to_host:
            found.append(("accept",))
        if self.left["message"] and not driver.is_rolling:
            found.append(("send",))
        if self.log:
            found.append(("obey",))
        if driver.waiting and not driver.found:
            found.append(("secure",))
        if self.copy is not None:
            found.append(("copied",))
        if self.seek_copy is not None:
            found.append(("sought",))
        if self.agreement is not None:
            found.append(("answered",))
        if self.is_unanswered:
            found.append(("ask again",))
        if service is None and not self.log:
            found.append(("resume",) if self.recollection else ("recollect",))
        found += self._of_service(service) if service is not None else []
        return found + self._of_analyst()

    def _of_service(self, service: Service) -> list[Step]:
        found: list[Step] = [("kept", index) for index in range(len(self.answers))]
        if self.to_service:
            found.append(("hear",))
        is_read = self.analyst is not None and all(
            one[0] != "pin" for one in self.to_analyst
        )  # what was told before is
        if service.stage == "plan" and is_read:
            found.append(("plan",))
        has_number = service.last < service.allowance.most or service.allowance.wanted(service.last) is not None
        if self.left["snapshot"] and not service.is_rolling and has_number:
            found.append(("snapshot",))
        if self.left["restore"] and not service.is_rolling and is_read and service.seeking is None:
            found += [("restore", number) for number in sorted(self.stored())]
        return found

    def _of_analyst(self) -> list[Step]:
        if self.analyst is None:
            return [("open analyst",)]
        found: list[Step] = [("take",)] if self.to_analyst else []
        found += [("lend",)] if self.lending is not None else []
        return found + ([("lend sought",)] if self.seeking is not None else [])

    def faults(self) -> list[Step]:
        """Who may die now (`True`: what it has told others comes all the same), and the answer that may be lost."""
        found: list[Step] = []
        for who in dict.fromkeys(self.deaths):
            for victim in ("service", "analyst", "host") if who == "any" else (who,):
                if self._is_alive(victim):
                    found += [(f"{victim} dies", who, is_kept) for is_kept in (False, True)[: 1 + (victim != "host")]]
        if self.hiccups and self.driver.is_asking and not self.is_unanswered and self.service is not None:
            found.append(("hiccup",))
        return found

    def _is_alive(self, who: str) -> bool:
        if who == "host":
            return self.service is not None and self.host[0] != NOBODY
        return self.analyst is not None if who == "analyst" else bool(self.service or self.recollection)

    def perform(self, step: Step) -> None:
        """One of `enabled` or `faults`; raises `OracleError` if something is wrong behind it."""
        kind, *rest = step
        if rest and isinstance(rest[-1], bool):
            self.deaths.remove(rest[0])
            rest = rest[1:]
        getattr(self, "_" + kind.replace(" ", "_"))(*rest)
        self._settle()
        check(self)

    # ---- the driver, and the host ---------------------------------------------------------------------------------

    def _accept(self) -> None:
        generation, message = self.to_host.pop(0)
        if generation == self.host[0]:
            self.host = generation, (*self.host[1], message)

    def _send(self) -> None:
        self.left["message"] -= 1
        message = self.script.messages - self.left["message"]
        self.truth.expected.append(message)
        self._put(message)

    def _put(self, message: int) -> None:
        self.driver.journal.append((self.driver.colour, message))
        self.to_host.append((self.driver.generation, message))

    def _obey(self) -> None:
        command = self.log.pop(0)
        driver, (kind, number, *rest) = self.driver, command
        match kind:
            case "record":
                self._record(number)
            case "numbers":
                driver.line.numbers = number
            case "kept":
                driver.waiting.append(KeptSnapshot(number, name_of(number), driver.generation))
            case "seek":
                self._seek(number)
            case "stop":
                driver.generation, driver.is_rolling = number, True
                self.to_service.append(command)
            case "load":
                self._load(*rest)
                self.to_service.append(("load", number))
        if self.service is not None:
            self.service.obeyed += 1
            self.service.allowance.obeyed(self.service.obeyed)

    def _record(self, number: int) -> None:
        in_flight = [message for generation, message in self.to_host if generation == self.host[0]]
        self.truth.contents[number] = (*self.host[1], *in_flight)
        self.driver.colour = number
        self.to_service.append(("report", number))

    def _load(self, number: int, again_from: int | None, last: int) -> None:
        driver = self.driver
        if again_from is None:
            self.truth.restored(number)
        driver.line.went_back(name_of(number), number)
        again, driver.journal = sent_again(driver.journal, again_from), []
        driver.colour, driver.is_rolling = last, False
        for _, message in again:
            self._put(message)
        if (base := driver.line.uncopied()) is not None:
            driver.waiting.append(KeptSnapshot(base.number, base.snapshot_id, driver.generation))

    def _secure(self) -> None:
        driver = self.driver
        driver.found, driver.waiting = driver.waiting, []
        last = newest(driver.found)
        if not driver.line.must_fetch(last):
            self._secured(None)
        elif self.analyst is None:
            self.copy = driver.line.analyst_life, None
        else:
            self.lending = last.number

    def _copied(self) -> None:
        assert self.copy is not None
        (life, copy), self.copy = self.copy, None
        self._secured(copy, life)

    def _secured(self, copy: int | None, life: int = 0) -> None:
        driver = self.driver
        last = newest(driver.found)
        if driver.line.secure(last, copy, life, driver.generation, is_rolling=driver.is_rolling):
            self.to_service.append(("secured", last, True))
            driver.is_asking = True
            return
        self.to_service += [("secured", lost, False) for lost in driver.found]
        driver.found = []

    def _answered(self) -> None:
        driver = self.driver
        if self.agreement:
            driver.line.agreed()
            driver.journal = outside(driver.journal, newest(driver.found).number)
        self.agreement, driver.found, driver.is_asking = None, [], False

    def _ask_again(self) -> None:
        driver, self.is_unanswered = self.driver, False
        last = newest(driver.found)
        if driver.line.asks_again(last, driver.generation, is_rolling=driver.is_rolling):
            self.to_service.append(("secured", last, True))
        else:
            driver.found, driver.is_asking = [], False

    def _seek(self, number: int) -> None:
        if self.analyst is not None and self.driver.line.must_seek(name_of(number)):
            self.seeking = number
        else:
            self._hold(number, None, 0)

    def _sought(self) -> None:
        assert self.seek_copy is not None
        (life, number, is_copied), self.seek_copy = self.seek_copy, None
        self._hold(number, number if is_copied else None, life)

    def _hold(self, number: int, copy: int | None, life: int) -> None:
        is_held = self.driver.line.seek(Base(name_of(number), number, copy), life)
        self.to_service.append(("sought", number, is_held))

    def _recollect(self) -> None:
        base = self.driver.line.base
        assert base is not None
        self.recollection = (*self.driver.line.next_life(), base)

    # ---- the service ----------------------------------------------------------------------------------------------

    def _tell(self, service: Service, *command: Any) -> None:
        self.log.append(command)
        service.told += 1

    def _resume(self) -> None:
        assert self.recollection is not None
        (life, numbers, base), self.recollection = self.recollection, None
        line, allowance = ServiceLine(), Allowance(is_bounded=True, block=BLOCK)
        line.went_back(base.snapshot_id, base.number)
        self.service = Service(life, life * GENERATIONS, allowance.take_over(numbers), line, allowance)
        self._begin(self.service)

    def _begin(self, service: Service) -> None:
        service.generation += 1
        service.stage = "stop"
        service.sought = service.line.number if service.target is None else service.target
        service.pending.clear()
        self._tell(service, "stop", service.generation)

    def _plan(self) -> None:
        service = self._up
        number = service.sought
        self._read(number)
        self.host, self.to_host = (service.generation, self.truth.contents[number]), []
        again_from = number if service.target is None else None
        self._tell(service, "load", service.generation, number, again_from, service.last)
        service.stage = "load"

    def _restore(self, number: int) -> None:
        self.left["restore"] -= 1
        self._read(number)
        self._up.seeking = number
        self._tell(self._up, "seek", number)

    def _read(self, number: int) -> None:
        """The analyst plans to go back to this snapshot."""
        self.truth.check_loadable(number, self.stored(), "with the analyst")
        if self.analyst is not None:
            self.analyst.retention.plan(name_of(number))

    def _snapshot(self) -> None:
        service = self._up
        has_number = service.last < service.allowance.most
        if (more := service.allowance.wanted(service.last)) is not None:
            self._tell(service, "numbers", more)
            service.allowance.asked(more, service.told)
        if has_number:
            self.left["snapshot"] -= 1
            service.last += 1
            self.truth.gave(service.last)
            service.pending.add(service.last)
            self._tell(service, "record", service.last)

    def _hear(self) -> None:
        service = self._up
        kind, found, *rest = self.to_service.pop(0)
        match kind:
            case "report" if found in service.pending:
                service.pending.remove(found)
                service.unfinished.append((found, service.generation))
                self._hand_over(service, found, service.generation)
            case "stop" if (found, service.stage) == (service.generation, "stop"):
                service.stage = "plan"
            case "load" if (found, service.stage) == (service.generation, "load"):
                self._complete(service)
            case "sought" if found == service.seeking:
                service.seeking = None
                if rest[0]:  # else the program is told, and nothing has changed
                    service.target = found
                    self._begin(service)
            case "secured":
                self._judge(service, found, *rest)

    def _complete(self, service: Service) -> None:
        if service.target is not None:
            service.line.went_back(name_of(service.target), service.target)
        service.stage, service.target = "", None
        self._pin(service)

    def _judge(self, service: Service, found: KeptSnapshot, is_safe: bool) -> None:
        generation, is_rolling = service.generation, service.is_rolling
        agreement = service.line.secured(found, generation, is_rolling=is_rolling, is_safe=is_safe)
        if agreement is Agreement.MOVED:
            self._pin(service)
        if is_safe:
            self.agreement = agreement.is_agreed

    def _pin(self, service: Service) -> None:
        if self.analyst is not None:
            self.to_analyst.append(("pin", service.line.number))

    def _hand_over(self, service: Service, number: int, generation: int) -> None:
        if self.analyst is not None:
            self.to_analyst.append(("add", number, generation, service.life))

    def _kept(self, index: int) -> None:
        service, found = self._up, self.answers.pop(index)
        if found in service.unfinished:
            service.unfinished.remove(found)
            if self._outcome(service, found) is None:
                self._tell(service, "kept", found[0])
            service.noted.append(found)

    def _outcome(self, service: Service, found: tuple[int, int]) -> bool | None:
        return service.line.outcome(*found, service.generation, is_rolling=service.is_rolling)

    def _settle(self) -> None:
        """A party that waits to hear whether a snapshot is kept hears it as soon as that is known."""
        service = self.service
        for found in [*service.noted] if service is not None else ():
            outcome = self._outcome(self._up, found)
            if outcome is not None:
                self._up.noted.remove(found)
            if outcome:
                self.truth.promise(found[0])

    @property
    def _up(self) -> Service:
        assert self.service is not None
        return self.service

    # ---- the analyst ----------------------------------------------------------------------------------------------

    def _take(self) -> None:
        assert self.analyst is not None
        match self.to_analyst.pop(0):
            case ("pin", number):
                self.analyst.retention.pin(name_of(number))
            case ("add", number, generation, life):
                self.analyst.keep(number, self.script.most_kept)
                if self.script.has_history:
                    self.history.add(number)
                if self.service is not None and self.service.life == life:
                    self.answers.append((number, generation))

    def _lend(self) -> None:
        assert self.analyst is not None
        number, self.lending = self.lending, None
        assert number is not None
        self.analyst.retention.lend(name_of(number))
        self.copy = self.driver.line.analyst_life, number if number in self.analyst.kept else None

    def _lend_sought(self) -> None:
        assert self.analyst is not None
        assert self.seeking is not None
        number, self.seeking = self.seeking, None
        self.analyst.retention.lend(name_of(number))
        self.seek_copy = self.driver.line.analyst_life, number, number in self.analyst.kept

    def _open_analyst(self) -> None:
        """The driver tells it what to do; the service hands over again what was not finished."""
        self.driver.line.analyst_life += 1
        self.analyst = Analyst()
        for number in self.driver.line.copies():
            self.analyst.retention.recall(name_of(number))
            if number not in self.analyst.kept:
                self.analyst.kept.append(number)
        if self.service is not None:
            for number, generation in self.service.unfinished:
                self._hand_over(self.service, number, generation)

    def stored(self) -> set[int]:
        """Where the analyst, if there is one, can read a checkpoint."""
        return self.history | ({*self.analyst.kept} if self.analyst is not None else set())

    # ---- faults ---------------------------------------------------------------------------------------------------

    def _service_dies(self, is_kept: bool) -> None:
        self.service = self.recollection = None
        self.to_service.clear()
        self.answers.clear()
        if not is_kept:
            self.log.clear()
            self.to_analyst.clear()
        if self.driver.is_asking and (self.agreement is None or not is_kept):
            self.agreement, self.is_unanswered = None, True

    def _analyst_dies(self, is_kept: bool) -> None:
        self.analyst = None
        self.to_analyst.clear()
        if not is_kept:
            self.answers.clear()
        if self.lending is not None or (self.copy is not None and not is_kept):
            self.copy, self.lending = (self.driver.line.analyst_life, None), None
        if self.seeking is not None:
            self.seek_copy, self.seeking = (self.driver.line.analyst_life, self.seeking, False), None
        elif self.seek_copy is not None and not is_kept:
            self.seek_copy = *self.seek_copy[:2], False

    def _host_dies(self, _: bool) -> None:
        self.host, self.to_host = (NOBODY, ()), []
        self._begin(self._up)

    def _hiccup(self) -> None:
        """The driver takes the service for dead, and hears that it is not; what it asked has come there, or has not."""
        self.hiccups -= 1
        self.to_service = [one for one in self.to_service if one[0] != "secured" or not one[2]]
        self.agreement, self.is_unanswered = None, True
        self.driver.line.next_life()
