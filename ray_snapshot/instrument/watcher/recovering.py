"""Going back by itself: when a process of a watched app dies and Ray starts another in its place, all go back.

What is gone back to is the last snapshot of this run that can be restored, or the beginning, as long as there is none: all that
the program has called since is in its journal (`process.journal`) and is called again. How they go back is `rolling`'s affair;
this file decides whether, to what, and when.

A death that the app wants is not undone: of these Ray starts no other, or `ray.kill(no_restart=False)` has said so before.
The new process stands still from its constructor's end on; the rollback begins when the constructors of all that have come up
so have ended, for they may call others.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ray_snapshot.errors import NotRestorableError, RaySnapshotError
from ray_snapshot.instrument import shape
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.commands import Based, Release
from ray_snapshot.protocol.rollback import MOST_IN_VAIN
from ray_snapshot.stderr import say

if TYPE_CHECKING:
    from ray_snapshot.instrument.watcher.collected import CollectedCalls
    from ray_snapshot.instrument.watcher.processes import Processes
    from ray_snapshot.runtime.collected import SnapshotHeader


@dataclass(frozen=True, slots=True)
class Limits:
    """When to go back by itself no more."""

    most_failures: int = 5
    """So many processes may die within `within_s` seconds."""
    within_s: float = 60.0
    start_s: float = 120.0
    """How long a process may take to come up again, and a rollback to end."""


@dataclass(frozen=True, slots=True)
class Base:
    """What is gone back to."""

    snapshot_id: str | None = None
    """None: the beginning."""
    machines: Mapping[str, str] = field(default_factory=dict)
    """Its machines by the names that people know."""


class Recovering:
    """Decides for one watched app; without `limits` it never goes back by itself. Everything runs on the watcher's loop."""

    def __init__(self, processes: Processes, limits: Limits | None, *, has_beginning: bool) -> None:
        """`has_beginning`: whether the program begins here, so that nothing has to be restored before it."""
        self.processes = processes
        self.limits = limits
        self.base: Base | None = Base() if has_beginning else None
        self.newest = 0
        """The highest number of a snapshot that was gone back to, or would have been: the journal begins behind it."""
        self.returning: dict[str, float] = {}
        """Machines that have come up again, and whose constructors have not ended; since when (monotonic)."""
        self.held: set[str] = set()
        """Machines that have come up again, and wait for the rollback."""
        self.wanted: set[str] = set()
        """Machines that the app has killed so that Ray starts them again."""
        self.anew: set[str] = set()
        """Those of them that have done so since the base: what they were then is of the past."""
        self.births: dict[str, str | None] = {}
        """By machine whose constructor has ended: why it cannot begin anew from there; None if it can."""
        self.losses = 0
        """Deaths so far: a snapshot that was begun before one is not gone back to behind it."""
        self.failures: deque[float] = deque()
        self.in_vain = 0
        """Deaths since there was another base."""
        self.task: asyncio.Task[None] | None = None
        self.is_over = False
        """Whether it has given up for good; the program's journal is cut all the same."""

    @property
    def is_under_way(self) -> bool:
        """Whether something has died that is to be undone."""
        return bool(self.returning) or self.task is not None

    # ---- deaths ---------------------------------------------------------------------------------------------------

    def intended(self, machine: str) -> None:
        """The app kills this machine, and wants Ray to start it again."""
        self.wanted.add(machine)

    def comes_back(self, machine: str) -> bool:
        """A process has come up in place of one that is gone; whether it is to wait until all go back."""
        if self.limits is None or self.is_over:
            return False
        if machine in self.wanted:
            self.wanted.discard(machine)
            self.anew.add(machine)
            return False
        self.losses += 1
        self.returning[machine] = time.monotonic()
        self.held.add(machine)
        return True

    def built(self, machine: str, obstacle: str | None) -> None:
        """A constructor has ended."""
        self.births[machine] = obstacle
        self._no_longer_awaited(machine)

    def _no_longer_awaited(self, machine: str) -> None:
        is_last = self.returning.pop(machine, None) is not None and not self.returning
        if is_last and self.task is None and self.held:
            self.task = asyncio.get_running_loop().create_task(self._recover())

    async def look(self) -> None:
        """Find out whether those that are awaited do not come."""
        for machine, since in list(self.returning.items()):
            state, _ = await self._state(machine)
            if state == "DEAD":  # with its maker, perhaps; whether all can go back without it is found then
                if machine in self.processes.parties.machines:
                    self.processes.ended(machine)
                self._no_longer_awaited(machine)
            elif self.limits is not None and time.monotonic() - since > self.limits.start_s:
                self.returning.pop(machine, None)
                self._give_up(f"{self.processes.roster.name_of(machine)} has not come up in time")

    async def _state(self, machine: str) -> tuple[str | None, int]:
        key = self.processes.roster.facts[machine].get("key")
        if key is None:
            return None, 0
        return await asyncio.get_running_loop().run_in_executor(None, shape.actor_state, key)

    async def is_coming_back(self, key: str | None, generation: int) -> bool:
        """Whether what a process of this generation has met will be undone: the death of the actor of that key, or a rollback.

        Answers at once, unless Ray does not know yet.
        """
        if self.limits is None or self.is_over:
            return False
        deadline = time.monotonic() + LIMITS.unsure_death_s
        while True:
            rolling = self.processes.rolling
            if self.is_under_way or rolling.is_rolling or rolling.loaded > generation:
                return True
            machine = next((name for name, one in self.processes.roster.facts.items() if one.get("key") == key), None)
            if key is None or machine is None or machine in self.wanted:
                return False
            state, restarts = await self._state(machine)
            if state == "RESTARTING" or restarts > self.processes.roster.facts[machine]["restarts"]:
                return True
            if state == "DEAD" or time.monotonic() > deadline:
                return False
            await asyncio.sleep(LIMITS.recovering_look_s)

    # ---- what is gone back to -------------------------------------------------------------------------------------

    async def kept(self, collected: CollectedCalls, losses: int) -> None:
        """The analyst has a snapshot that can be restored, begun after so many deaths: go back to it from now on.

        Not before all its processes have said that they outlived it: else one may have died before it was complete, and it may
        hold what others had heard of that, an error in place of a reply, which no way back would undo.
        """
        header, machines = collected.header, collected.completed.machines
        if self._is_past(header, losses) or not await self.processes.outboxes.have_heard(machines, LIMITS.outlived_s):
            return
        if self._is_past(header, losses):
            return
        facts = collected.facts
        names = {str(facts[name]["shown"]): name for name in collected.completed.machines if name != DRIVER}
        self.base, self.newest = Base(header.snapshot_id, names), header.number
        self.anew.clear()
        self.in_vain = 0
        self.processes.analyst.pin.remote(header.snapshot_id)
        for machine in names.values():
            self.processes.tell(machine, Based(header.number, 0, {}, frozenset()), is_urgent=False)
        program = collected.completed.machines.get(DRIVER)
        if program is not None:
            sent = {output.target: output.last for output in program.outputs}
            channels = [one for one in collected.completed.channels if one.source == DRIVER]
            moving = frozenset((one.target, number) for one in channels for number in one.in_flight)
            self.processes.tell(DRIVER, Based(header.number, program.incarnation, sent, moving), is_urgent=False)

    def _is_past(self, header: SnapshotHeader, losses: int) -> bool:
        """Whether it is not gone back to any more; of snapshots that are kept at once, the last one counts."""
        rolling = self.processes.rolling
        is_past = losses != self.losses or header.generation != rolling.loaded or header.number < self.newest
        return self.limits is None or is_past or rolling.is_rolling or self.is_under_way

    def restored(self, snapshot_id: str, machines: Mapping[str, str] | None) -> None:
        """The program has restored a snapshot; `machines`: of this run, else all that it has made stays as it is."""
        self.base = None if machines is None else Base(snapshot_id, machines)
        self.anew.clear()

    # ---- going back -----------------------------------------------------------------------------------------------

    async def _recover(self) -> None:
        names = ", ".join(sorted(map(self.processes.roster.name_of, self.held)))
        try:
            reason = self._limit()
            if reason is not None:
                self.is_over = True
                self._give_up(reason)
                return
            assert self.limits is not None
            while self.held:
                await self._all_built()
                gone, self.held = self.held, set()
                try:
                    await self.processes.rolling.recover(self.base, self.anew, self.limits.start_s)
                except RaySnapshotError:
                    self.held |= gone
                    raise
            to = "its beginning" if self.base is None or self.base.snapshot_id is None else self.base.snapshot_id
            _say(f"{names} died: the app has gone back to {to}, and on")
        except RaySnapshotError as error:
            self._give_up(str(error))
        finally:
            self.task = None

    async def _all_built(self) -> None:
        """Those that came up meanwhile must have run their constructors; `look` ends this."""
        while self.returning:
            await asyncio.sleep(LIMITS.recovering_look_s)

    def _limit(self) -> str | None:
        """Why it does not go back again, for it has died too often; None if it does."""
        assert self.limits is not None
        now, most = time.monotonic(), self.limits.most_failures
        self.failures.append(now)
        self.in_vain += 1
        while self.failures[0] < now - self.limits.within_s:
            self.failures.popleft()
        if len(self.failures) > most:
            return f"{len(self.failures)} failures within {self.limits.within_s:g} s; {most} are borne"
        if self.in_vain > MOST_IN_VAIN * most:
            return f"{self.in_vain} failures since there was a snapshot to go back to; {MOST_IN_VAIN * most} are borne"
        return None

    def _give_up(self, reason: str) -> None:
        """All go on as they are, with what Ray has made anew."""
        gone, self.held = self.held, set()
        names = ", ".join(sorted(map(self.processes.roster.name_of, gone)))
        died = f"{names} died, and " if names else ""
        _say(f"{died}the app has not gone back, but goes on with what Ray has started in its place: {reason}")
        for machine in gone:
            self.processes.tell(machine, Release(self.processes.rolling.loaded))

    def are_built(self, others: Mapping[str, str]) -> bool:
        """Whether the constructors of these machines have ended, as far as the program has made them."""
        facts = self.processes.roster.facts
        return all(machine in self.births or facts[machine].get("maker") != DRIVER for machine in others.values())

    def check(self, others: Mapping[str, str]) -> tuple[set[str], set[str]]:
        """Of machines that the base has not (by name for people): those that the program made, and the rest, which are to end.

        Raises `NotRestorableError` for one that can neither begin anew nor be ended.
        """
        facts = self.processes.roster.facts
        own = {machine for machine in others.values() if facts[machine].get("maker") == DRIVER}
        for shown, machine in others.items():
            obstacle = self.births.get(machine, "its constructor has not ended") if machine in own else None
            if facts[machine].get("maker") is None:
                obstacle = "it was made by what is not watched, or before the watching began"
            if obstacle is not None:
                what = f"{shown}, which came since, cannot begin anew: {obstacle}"
                raise NotRestorableError(what, obstacles=[what])
        return own, {*others.values()} - own


def _say(text: str) -> None:
    say(f"ray-snapshot: {text}")
