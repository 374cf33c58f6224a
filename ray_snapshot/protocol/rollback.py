"""How a whole system goes back to one snapshot: a generation, which everybody leaves before anybody enters the next.

Two phases, as in two-phase commit (Gray 1978). Prepare: every host stops, says so, and loads its share once all have stopped;
start: when all have loaded. Why: S is restored, resumes and sends m; R is not yet rolled back, accepts m, is rolled back, and
m is lost. Or R still acts, and writes what it read before, while a machine that R carried acts elsewhere already.

Nothing is assumed of the network: what is asked and acknowledged here may be late, lost, doubled or in any order. So asking
again is harmless, and an acknowledgement counts for its own generation only. Every message, reply, timer and control message
of the system bears the generation of its sender; a host judges it on arrival (`judge`):

    older than the host's generation         REFUSE, for good
    of the host's generation, and it runs    ACCEPT
    any other                                HOLD until the host starts (its sender has been told to start already); judge again

A host (`RollbackHost`), by its own generation g. Asked for an older one, or what an earlier incarnation of it was asked:
nothing. For a newer one: STOP as below, whatever it is doing; LOAD and START are an error.

    event, for g          STOPPED               LOADING         LOADED                    RUNNING
    Asked STOP            Acknowledge           -               -                         - (late: it must not stop again)
    Asked LOAD            LoadStates            -               Acknowledge               -
    Asked START           an error              an error        StartAccepting, Acknowledge   Acknowledge
    LoadFinished          an error              Acknowledge     an error                  an error
    (newer) Asked STOP    StopAccepting, Acknowledge, in every phase

The coordinator (`RollbackCoordinator`) keeps for each host the last step that it acknowledged (`done`). No host is asked for a
step before all have done the one before it. A host that dies, at whatever moment, begins a generation of its own: then
no acknowledgement of the dead one can be taken for one of its replacement, and a second failure during recovery is nothing
special. A host that is made while the system runs has nothing to load, but joins before it acts (it begins `LOADED`, in the
generation of its maker), or it would act on in a generation that all others have left. If that has happened by then
it is taken through all steps, with nothing to load.

Stopping may be final: a host drops what it was doing, while a process of an app that we did not write only comes to rest, and
could go on. Where both take part, those for which it is final (`last_to_stop`) are asked when all others have stopped; so a
rollback can be given up, with nothing lost, as long as one of the others has not.

Time is an input: seconds, of the caller's clock; only to give up after too many failures. Imports the standard library only.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum, IntEnum

from ray_snapshot.errors import ProtocolError

NO_GENERATION = -1
"""Of a host that has just come up, and is in no generation yet."""


class Step(IntEnum):
    """What a host is asked to do, in this order."""

    STOP = 1
    LOAD = 2
    START = 3


class Phase(Enum):
    """What a host is doing."""

    STOPPED = "stopped"
    LOADING = "loading"
    LOADED = "loaded"
    RUNNING = "running"


class Judgement(Enum):
    """What becomes of something that bears a generation."""

    ACCEPT = "accept"
    HOLD = "hold"
    REFUSE = "refuse"


# ---- a host -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Asked:
    """The coordinator asks this incarnation of the host for a step."""

    step: Step
    generation: int
    incarnation: int = 0


@dataclass(frozen=True, slots=True)
class LoadFinished:
    """The host has loaded what `LoadStates` told it to."""

    generation: int


@dataclass(frozen=True, slots=True)
class StopAccepting:
    """From this instant no machine acts and nothing is accepted; snapshots, timers and mailboxes are forgotten."""

    generation: int


@dataclass(frozen=True, slots=True)
class LoadStates:
    """Load this host's share of what is restored; then comes `LoadFinished`."""

    generation: int


@dataclass(frozen=True, slots=True)
class StartAccepting:
    """Act, send and accept in this generation; judge again what was held."""

    generation: int


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Tell the coordinator that the step is done."""

    step: Step
    generation: int


HostEvent = Asked | LoadFinished
HostEffect = StopAccepting | LoadStates | StartAccepting | Acknowledge


class RollbackHost:
    """One host's side.

    Those of the beginning begin `RUNNING`; one that was restarted, or is started to carry what is restored, `STOPPED`,
    in `NO_GENERATION`; one that is made while the system runs `LOADED`, in the generation of its maker.
    """

    def __init__(self, generation: int = 0, phase: Phase = Phase.RUNNING, incarnation: int = 0) -> None:
        self.generation = generation
        self.phase = phase
        self.incarnation = incarnation

    def judge(self, generation: int) -> Judgement:
        """What becomes of something of this generation that arrives now."""
        if generation < self.generation:
            return Judgement.REFUSE
        is_current = generation == self.generation and self.phase is Phase.RUNNING
        return Judgement.ACCEPT if is_current else Judgement.HOLD

    def step(self, event: HostEvent) -> tuple[HostEffect, ...]:
        """Take one event; returns the effects, in the order in which the world must carry them out."""
        if isinstance(event, LoadFinished):
            return self._load_finished(event.generation)
        if event.generation < self.generation or event.incarnation != self.incarnation:
            return ()
        return (
            self._again(event.step)
            if event.generation == self.generation
            else self._leave(event.step, event.generation)
        )

    def _leave(self, step: Step, generation: int) -> tuple[HostEffect, ...]:
        if step is not Step.STOP:
            raise ProtocolError(f"asked to {step.name} generation {generation}, and it has not stopped for it")
        self.generation, self.phase = generation, Phase.STOPPED
        return StopAccepting(generation), Acknowledge(Step.STOP, generation)

    def _again(self, step: Step) -> tuple[HostEffect, ...]:
        """A step of the generation that the host is in already."""
        generation, acknowledge = self.generation, Acknowledge(step, self.generation)
        match step, self.phase:
            case Step.LOAD, Phase.STOPPED:
                self.phase = Phase.LOADING
                return (LoadStates(generation),)
            case Step.START, Phase.LOADED:
                self.phase = Phase.RUNNING
                return StartAccepting(generation), acknowledge
            case (Step.STOP, Phase.STOPPED) | (Step.LOAD, Phase.LOADED) | (Step.START, Phase.RUNNING):
                return (acknowledge,)
            case Step.START, _:
                raise ProtocolError(f"asked to start generation {generation}, and it has not loaded: {self.phase}")
        return ()

    def _load_finished(self, generation: int) -> tuple[HostEffect, ...]:
        if generation < self.generation:
            return ()  # it was told to stop meanwhile
        if generation > self.generation or self.phase is not Phase.LOADING:
            raise ProtocolError(
                f"generation {generation} was loaded by a host that is {self.phase} in {self.generation}"
            )
        self.phase = Phase.LOADED
        return (Acknowledge(Step.LOAD, generation),)


# ---- the coordinator ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HostExpected:
    """This host will be started, and carry what is restored: it is waited for."""

    host: str


@dataclass(frozen=True, slots=True)
class HostJoined:
    """A host has come up. `incarnation` tells its lives apart; `generation` is what it was made in (or none)."""

    host: str
    incarnation: int
    generation: int


@dataclass(frozen=True, slots=True)
class HostFailed:
    """This incarnation of a host is gone; `is_replaced`: another will join under its name, and is waited for."""

    host: str
    incarnation: int
    now: float
    is_replaced: bool = True


@dataclass(frozen=True, slots=True)
class RollbackAsked:
    """The system is to be rolled back, though nothing has failed."""

    reason: str


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A host has done a step."""

    host: str
    step: Step
    generation: int


@dataclass(frozen=True, slots=True)
class AskAgain:
    """Some time has passed: what was asked may have been lost."""


@dataclass(frozen=True, slots=True)
class BeginGeneration:
    """Give up what is pending of every snapshot, and choose which to restore, and where; start none before the end."""

    generation: int
    reason: str


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask this incarnation of a host for a step, and no other."""

    host: str
    step: Step
    generation: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class RollbackComplete:
    """All hosts run in this generation."""

    generation: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Too many failures: the system is not rolled back again."""

    reason: str


CoordinatorEvent = HostExpected | HostJoined | HostFailed | RollbackAsked | Acknowledged | AskAgain
CoordinatorEffect = BeginGeneration | Ask | RollbackComplete | GiveUp


MOST_IN_VAIN = 10
"""Times `most_failures`: so many failures are borne without a snapshot being kept meanwhile."""


class RollbackCoordinator:
    """The generations of one system. After a restart, begin with `last`, the highest generation that was ever begun."""

    def __init__(self, *, last: int = 0, most_failures: int | None = None, within_s: float = 60.0) -> None:
        self.generation = last
        self.most_failures = most_failures
        self.within_s = within_s
        self.done: dict[str, int] = {}
        """By host: the last step that it has acknowledged in this generation; 0 if none."""
        self.incarnations: dict[str, int] = {}
        self.down: set[str] = set()
        """Hosts that are waited for, and not there."""
        self.last_to_stop: set[str] = set()
        """Those that cannot go on as they were once they have stopped: asked for it when all others have stopped."""
        self.failures: deque[float] = deque()
        self.in_vain = 0
        """Failures since a snapshot was kept."""
        self.is_running = True
        """Whether no rollback is under way: then snapshots may be started."""
        self.has_given_up = False

    @property
    def reached(self) -> int:
        """The last step that every host has done."""
        return min(self.done.values(), default=int(Step.START))

    @property
    def behind(self) -> list[str]:
        """Those that all others wait for: they are to do the next step."""
        reached = self.reached
        found = [host for host, done in self.done.items() if done == reached]
        if any(done < Step.STOP for host, done in self.done.items() if host not in self.last_to_stop):
            found = [host for host in found if host not in self.last_to_stop]
        return found

    def step(self, event: CoordinatorEvent) -> tuple[CoordinatorEffect, ...]:
        """Take one event; returns the effects, in the order in which the world must carry them out."""
        if self.has_given_up:
            return ()
        match event:
            case Acknowledged(host, step, generation):
                return self._acknowledged(host, step, generation)
            case HostJoined(host, incarnation, generation):
                return self._joined(host, incarnation, generation)
            case HostFailed(host, incarnation, now, is_replaced):
                return self._failed(host, incarnation, now, is_replaced)
            case HostExpected(host):
                if host not in self.done:
                    self.done[host] = 0
                    self.down.add(host)
                return ()
            case RollbackAsked(reason):
                return self._begin(reason)
            case AskAgain():
                return self._asks()

    def _begin(self, reason: str) -> tuple[CoordinatorEffect, ...]:
        self.generation += 1
        self.is_running = False
        self.done = dict.fromkeys(self.done, 0)
        return BeginGeneration(self.generation, reason), *self._asks()

    def _asks(self) -> tuple[CoordinatorEffect, ...]:
        """Ask those that are behind for the next step; the others wait for them."""
        reached = self.reached
        if reached == Step.START:
            return ()
        step, behind = Step(reached + 1), [host for host in self.behind if host not in self.down]
        return tuple(Ask(host, step, self.generation, self.incarnations[host]) for host in behind)

    def _asks_last(self) -> tuple[CoordinatorEffect, ...]:
        """Ask those that stop last, once, when the last of the others has stopped."""
        are_others_done = all(done >= Step.STOP for host, done in self.done.items() if host not in self.last_to_stop)
        return self._asks() if are_others_done else ()

    def _acknowledged(self, host: str, step: Step, generation: int) -> tuple[CoordinatorEffect, ...]:
        if generation > self.generation:
            raise ProtocolError(f"{host} acknowledges generation {generation}, and {self.generation} is the last")
        if generation < self.generation or step <= self.done.get(host, Step.START):
            return ()  # late, double, or of a host that is no longer waited for
        if step != self.done[host] + 1:
            raise ProtocolError(f"{host} acknowledges {step.name}, which it was not asked for", host=host)
        before = self.reached
        self.done[host] = step
        if self.reached == before:
            return self._asks_last() if step is Step.STOP and host not in self.last_to_stop else ()
        if self.reached < Step.START or self.is_running:
            return self._asks()
        self.is_running = True
        return (RollbackComplete(generation),)

    def _joined(self, host: str, incarnation: int, generation: int) -> tuple[CoordinatorEffect, ...]:
        if incarnation <= self.incarnations.get(host, -1):
            return ()  # said twice, or dead already
        self.incarnations[host] = incarnation
        if host in self.done and host not in self.down:
            return self._begin(f"host {host} died unseen")
        is_current = host not in self.done and generation == self.generation
        self.down.discard(host)
        self.done[host] = int(Step.LOAD) if is_current else 0
        return self._asks() if self.done[host] == self.reached else ()

    def _failed(self, host: str, incarnation: int, now: float, is_replaced: bool) -> tuple[CoordinatorEffect, ...]:
        known = self.incarnations.get(host, -1)
        if incarnation < known or (incarnation == known and host not in self.done):
            return ()  # another has taken its place, or it is known
        self.incarnations[host] = incarnation
        if host in self.down and is_replaced:
            return ()  # it is waited for as before
        self.done[host] = 0
        self.down.add(host)
        if not is_replaced:
            self.down.discard(host)
            self.last_to_stop.discard(host)
            del self.done[host]
        return self._give_up(now) or self._begin(f"host {host} is gone")

    def kept(self) -> None:
        """There is something later to go back to."""
        self.in_vain = 0

    def _give_up(self, now: float) -> tuple[CoordinatorEffect, ...]:
        """Too many failures at once; or, however slowly they come, so many that what kills is what is done again each time."""
        if self.most_failures is None:
            return ()
        self.in_vain += 1
        self.failures.append(now)
        while self.failures[0] < now - self.within_s:
            self.failures.popleft()
        most_in_vain = MOST_IN_VAIN * self.most_failures
        if len(self.failures) > self.most_failures:
            reason = f"{len(self.failures)} failures within {self.within_s:g} s; {self.most_failures} are borne"
        elif self.in_vain > most_in_vain:
            reason = f"{self.in_vain} failures since a snapshot was kept; {most_in_vain} are borne"
        else:
            return ()
        self.has_given_up, self.is_running = True, False
        return (GiveUp(reason),)
