"""The user's machines on simulated hosts, under a protocol: the very `HostCore` and `Coordinator` that run on Ray.

The hosts are the simulator's (`simulation.mail.simulated`); what their machines do are actions of the user's own classes
(`stage`). Snapshots are those that the protocol takes. Read `hosted_runs` next. Never imports Ray unless a machine calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

from ray_snapshot.errors import HostDiedError
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.host import Machine
from ray_snapshot.simulation.mail.fingerprints import fingerprint
from ray_snapshot.simulation.mail.hosts import Body, SimHost, Step
from ray_snapshot.simulation.mail.network import Carried
from ray_snapshot.simulation.mail.oracle import Action, MessageId
from ray_snapshot.simulation.mail.rules import Rules
from ray_snapshot.simulation.mail.simulated import STEPS, SimulatedHosts
from ray_snapshot.testing.acts import Act, Answer, Around, Chooses, Outcome, Raised, Ref, Sent, Waits
from ray_snapshot.testing.history import Performed
from ray_snapshot.testing.records import Inside, Mail, Rest, Unborn
from ray_snapshot.testing.space import raise_if_begun_wrong
from ray_snapshot.testing.stage import NO_REFS, Stage
from ray_snapshot.testing.values import as_bytes


class HostedWorld(SimulatedHosts):
    """Hosts with machines of the user's classes."""

    def __init__(self, stage: Stage, draw: Callable[[int], int], protocol: str, hosts: int | None) -> None:
        self.stage = stage
        """Where actions are done."""
        self.draw = draw
        """Says how chance comes out, one of so many ways."""
        self.host_count = hosts
        self.clock = 0.0
        self.dues: dict[tuple[str, str, int], float] = {}
        """When timers are due, by (owner, target, number)."""
        self.timeouts: dict[str, float] = {}
        """When waits are over, by machine."""
        self.names: tuple[str, ...] = ()
        self.unbuilt: set[str] = set()
        """Machines that the program has created, and that are still to be constructed."""
        self.inside: set[str] = set()
        """Machines that wait inside an action."""
        self.came: dict[Ref, tuple[MessageId, Answer, Any]] = {}
        """Answers that have come: (message, answer, colour)."""
        self.calls: dict[str, int] = {}
        self.owed: dict[Ref, str] = {}
        """By call: the machine that was called."""
        self.failure: str | None = None
        self.done: list[Performed] = []
        """What each action of the log did."""
        self.in_flight: list[Sent] = []
        """What its senders send again, once all machines are there."""
        self.stops: list[Sent] = []
        """Machines that had stopped when the system began."""
        self.dealt = 0
        self._arounds: dict[str, Around] = {}
        self.replies: Counter[tuple[str, str]] = Counter()
        """How many answers there have been, by who answers and to whom."""
        super().__init__(Rules(protocol=protocol))
        self.add_host(DRIVER, None)
        self.central.coordinator.register(DRIVER)
        core = self.hosts[DRIVER].core
        core.end_action(core.born(DRIVER, Body(Rest(0, b""))))
        core.resolve(DRIVER, DRIVER)
        self.places[DRIVER] = DRIVER
        self.log.lengths[DRIVER] = 0

    def __getstate__(self) -> dict[str, Any]:
        """What belongs to all copies of a world is not copied with it, nor what is told of a run alone."""
        return {**self.__dict__, "stage": None, "draw": None, "done": [], "_arounds": {}}

    def begin(self) -> None:
        """The program that builds the system runs, to its end or its first wait."""
        host = self.hosts[DRIVER]
        machine = host.core.machines[DRIVER]
        host.core.begin_action(machine)
        self._do(host, machine, Act(DRIVER, 0, None, "build", (), around=self._around(host)), (), 0, (), [])

    def mark(self, *, has_clock: bool) -> Hashable:
        """Equal for worlds that will behave alike; `has_clock`: machines ask for the time."""
        due = [(key, round(at - self.clock, 9)) for key, at in sorted(self.dues.items())]
        over = [(name, round(at - self.clock, 9)) for name, at in sorted(self.timeouts.items())]
        return fingerprint(self), tuple(due), tuple(over), self.clock if has_clock else None

    # ---- which steps there are --------------------------------------------------------------------------------------

    def is_being_built(self) -> bool:
        """Whether a machine that the program has created is still to be constructed."""
        return bool(self.unbuilt)

    def enabled(self) -> list[Step]:
        """Every step that something waits for; of timers and timeouts only those that are due first."""
        steps = [step for name in self.hosts for step in self.enabled_on(name)]
        steps += [("deliver", index) for index in range(len(self.network.batches))]
        steps += [("control", index) for index in range(len(self.control))]
        if not (self.dues or self.timeouts):
            return steps
        steps += [("timeout", name) for name in sorted(self.timeouts) if not self.hosts[self.places[name]].is_down]
        first = min([*self.dues.values(), *self.timeouts.values()], default=0.0)
        return [step for step in steps if self._due_of(step) in (None, first)]

    def _due_of(self, step: Step) -> float | None:
        if step[0] == "timeout":
            return self.timeouts[step[1]]
        if step[0] != "fire":
            return None
        channel, number = self.hosts[step[1]].timers[step[2]]
        return self.dues[channel.owner.name, channel.target, number]

    def enabled_on(self, name: str) -> list[Step]:
        """The steps of one host: there are no other generations here."""
        host = self.hosts[name]
        if host.is_down:
            return []
        return host.steps(self._callers(name) if self.inside else (), self.places, self.rules.window)

    def _callers(self, name: str) -> list[str]:
        found = []
        for machine in self.hosts[name].core.machines.values():
            if machine.is_suspended and isinstance(machine.body.state, Inside) and self._ready(machine.body.state.wait):
                found.append(machine.name)
        return found

    def _ready(self, wait: Waits) -> tuple[str, Any] | None:
        return wait.given(self._answers(wait))

    def _answers(self, wait: Waits) -> list[Answer | None]:
        return [self.came[ref][1] if ref in self.came else None for ref in wait.refs]

    # ---- steps ------------------------------------------------------------------------------------------------------

    def perform(self, step: Step, choice: int = 0) -> None:  # noqa: ARG002 - chance is asked when it is needed
        """Take one step."""
        self.taken += 1
        _ALL[step[0]](self, *step[1:])

    def _flush(self, name: str) -> str:
        for target, batch in self.hosts[name].core.take_batches(self.rules.window):
            self.network.batches.append(Carried(name, target, batch))
        return ""

    def _deliver(self, index: int) -> str:
        carried = self.network.batches.pop(index)
        self.hosts[carried.source].core.outputs[carried.target].in_flight -= 1
        host = self.hosts[carried.target]
        if not host.is_down:
            host.core.arrive(carried.batch)
        return ""

    def _accept_next(self, name: str) -> None:
        host = self.hosts[name]
        numbers = host.core.boundary()
        if numbers:
            self.record(numbers, host.core.machines)
        found = host.core.next_action()
        if found is None:
            return
        machine, taken = found
        record: Rest = machine.body.state
        name, used = machine.name, tuple(range(self.calls.get(machine.name, 0)))
        mails: list[Mail] = [message[3] for _, message in taken]
        is_join, method = len(taken) > 1, mails[0].method
        if is_join:
            method = self.stage.joins[record.kind][tuple(mail.method for mail in mails)]
        payloads = tuple([mail.payload for mail in mails])
        act = Act(name, record.kind, record.state, method, payloads, is_join, used, self._around(host))
        whole = tuple([(box.source, box.kind, message[3]) for box, message in taken])
        self._do(host, machine, act, (), 0, whole, [(box.source, name, box.kind, message[1]) for box, message in taken])

    def _resume_machine(self, name: str, *, is_timeout: bool = False) -> None:
        """A machine goes on where it waits."""
        host = self.hosts[self.places[name]]
        machine = host.core.machines[name]
        record: Inside = machine.body.state
        wait, answers = record.wait, self._answers(record.wait)
        answer = wait.timed_out(answers) if is_timeout else wait.given(answers)
        if answer is None:
            return
        self.timeouts.pop(name, None)
        there = [self.came[ref] for ref in wait.refs if ref in self.came]
        for _, _, colour in there:
            host.core.note(colour, machine)
        self.boundary(host)
        host.core.resume(machine)
        inputs = (*record.inputs, ("answer", *answer, self._around(host)))
        accepted = [message for message, _, _ in there]
        self.inside.discard(name)
        self._do(host, machine, record.act, inputs, record.emitted, record.taken, accepted)

    def _time_out(self, name: str) -> None:
        self.clock = max(self.clock, self.timeouts[name])
        self._resume_machine(name, is_timeout=True)

    def _be_born(self, name: str) -> None:
        host = self.hosts[name]
        self.boundary(host)
        creation = host.core.next_birth()
        assert creation is not None
        record: Unborn = creation.payload
        joins = tuple(self.stage.joins[record.kind])
        machine = host.core.machine(creation.child)
        machine.is_suspended = True  # not to act before its constructor is done
        host.core.born(creation.child, Body(Rest(record.kind, b"")), joins)
        self.unbuilt.discard(creation.child)
        machine.is_suspended = False
        act = Act(creation.child, record.kind, None, record.method, (record.payload,), around=self._around(host))
        accepted = [(creation.creator, creation.child, "creation", 1)]
        self._do(host, machine, act, (), 0, ((creation.creator, "creation", None),), accepted)
        host.core.end_action(machine)
        if not machine.is_suspended:
            host.core.copying.wake(machine)
            host.core._queue(machine)

    def _fire_timer(self, name: str, index: int) -> None:
        channel, number = self.hosts[name].timers[index]
        self.clock = max(self.clock, self.dues.pop((channel.owner.name, channel.target, number)))
        self.hosts[name].fire(index)

    def _lose(self, name: str) -> None:
        """A host is gone: who waits for a machine of it hears so."""
        self._crash(name)
        on_its_way = {message[2] for message in self.control if message[0] == "answer"}
        for ref, target in sorted(self.owed.items()):
            if self.places.get(target) == name and ref not in self.came and ref not in on_its_way:
                self._answer_for_lost(ref, target)

    def _answer_for_lost(self, ref: Ref, target: str) -> None:
        host = self.hosts[self.places[ref[0]]]
        error = HostDiedError(f"the host of {target} died", host=self.places[target], machines=[target])
        self._reply(target, ref, Answer.of(error), host.core.colour)

    def hear(self, message: Step) -> str:
        """A control message arrives."""
        kind, where, *rest = message
        if kind == "answer":
            ref, sent, answer, colour = rest
            if not self.hosts[self.places[where]].is_down:
                self.came[ref] = sent, answer, colour
            return "an answer"
        if kind == "halt_machine":
            core = self.hosts[where].core
            if not self.hosts[where].is_down:
                core.stop(core.machine(rest[0]))
            return "stops"
        return super().hear(message)

    # ---- one action -------------------------------------------------------------------------------------------------

    def _around(self, host: SimHost) -> Around:
        core = host.core
        found, stopped = self._arounds.get(core.host), core.addresses.stopped
        if found is None or found.names is not self.names or len(found.stopped) != len(stopped):
            found = self._arounds[core.host] = Around(self.names, tuple(sorted(stopped)))
        return found

    def _outcome(self, act: Act, inputs: tuple[Any, ...], *, has_sites: bool | None = None) -> Outcome:
        while True:
            found = self.stage.perform(act, inputs, self.clock, has_sites=has_sites)
            if type(found.end) is not Chooses:
                return found
            inputs = (*found.inputs, ("chance", self.draw(found.end.options)))

    def _do(
        self,
        host: SimHost,
        machine: Machine,
        act: Act,
        inputs: tuple[Any, ...],
        emitted: int,
        taken: tuple[tuple[str, str, Any], ...],
        accepted: Sequence[MessageId],
    ) -> None:
        """A machine acts: what it sends goes out, and it ends or waits."""
        outcome = self._outcome(act, inputs)
        if inputs and isinstance(machine.body.state, Inside):
            before = self._outcome(act, machine.body.state.inputs, has_sites=True)
            self.stage.check_prefix(act, before, outcome)
        logged = self.log.begin(machine.name, accepted, 0)
        fresh = outcome.outputs[emitted:] if emitted else outcome.outputs
        end = outcome.end
        if type(end) is Waits:
            shown = as_bytes(outcome.shown)
            machine.body.state = Inside(act, shown, outcome.inputs, len(outcome.outputs), taken, end)
        else:
            machine.body.state = Rest(act.kind, outcome.shown, NO_REFS, any(one.what == "stop" for one in fresh))
        for sent in fresh:
            self._carry(host, machine, sent, logged)
        self.done.append(Performed(logged, act.method, taken, fresh))
        if type(end) is Waits:
            self.inside.add(machine.name)
            host.core.suspend(machine)
            if end.timeout is not None:
                self.timeouts[machine.name] = round(self.clock + end.timeout, 9)
            return
        calls = [mail.call for _, _, mail in taken if type(mail) is Mail and mail.call is not None]
        for ref in calls:
            colour = host.core.colour_of(machine)
            logged.sent.append(self._reply(machine.name, ref, end.answer, colour))  # type: ignore[union-attr]
        if type(end) is Raised and not calls:
            self.failure = self.failure or end.text
            raise_if_begun_wrong(act, end)
        host.core.end_action(machine)

    def _reply(self, source: str, ref: Ref, answer: Answer, colour: Any) -> MessageId:
        """A machine answers a call; returns what the answer is called."""
        self.replies[source, ref[0]] += 1
        sent = source, ref[0], "reply", self.replies[source, ref[0]]
        self.control.append(("answer", ref[0], ref, sent, answer, colour))
        return sent

    def go_on(self) -> None:
        """What was in flight when the system began (`moments`) is sent again by its senders, in its order."""
        if not (self.in_flight or self.stops):
            return
        in_flight, self.in_flight = self.in_flight, []
        for sent in in_flight:
            host = self.hosts[self.places[sent.source]]
            machine = host.core.machines[sent.source]
            logged = next(action for action in reversed(self.log.actions) if action.machine == sent.source)
            self._carry(host, machine, sent, logged)
        for sent in self.stops:
            host = self.hosts[self.places[sent.target]]
            machine = host.core.machines[sent.target]
            machine.body.state = replace(machine.body.state, is_stopped=True)
            host.core.stop(machine)
        for host in self.hosts.values() if self.stops else ():
            host.core.learn_stopped([sent.target for sent in self.stops])
        self.stops = []

    def _carry(self, host: SimHost, machine: Machine, sent: Sent, logged: Action) -> None:
        source, core = machine.name, host.core
        if sent.source and (sent.what == "stop" or self.is_being_built()):
            (self.stops if sent.what == "stop" else self.in_flight).append(sent)
            return
        what = sent.what
        if what in ("mail", "call"):
            mail = Mail.of(sent, source)
            channel = core.send(machine, sent.target, what, sent.method, mail, 0.0)
            if core.addresses.unresolved:
                host.ask()
            logged.sent.append((source, sent.target, what, channel.sent))
            if (call := mail.call) is not None:
                self.calls[source] = self.calls.get(source, 0) + 1
                self.owed[call] = sent.target
                if sent.target in self.places and self.hosts[self.places[sent.target]].is_down:
                    self._answer_for_lost(call, sent.target)
        elif sent.what == "timer":
            channel = core.set_timer(machine, sent.target, sent.method, Mail.of(sent, source), 0.0, 0.0)
            host.ask()
            host.timers.append((channel, channel.sent))
            self.dues[source, sent.target, channel.sent] = round(self.clock + sent.seconds, 9)
            logged.sent.append((source, sent.target, "timer", channel.sent))
        elif sent.what == "create":
            place = self._room_for(host, machine, sent.target)
            self.make_room(host, sent.target, place)
            self.names = tuple(sorted((*self.names, sent.target)))
            if source == DRIVER and not sent.source:
                self.unbuilt.add(sent.target)
            core.create(source, sent.target, place, Unborn.of(sent, source), 0.0)
            logged.sent.append((source, sent.target, "creation", 1))
        elif sent.what == "stop":
            self._stop(host, machine, sent.target)
        elif sent.what == "snapshot":
            self.perform(("snapshot",))

    def _room_for(self, host: SimHost, machine: Machine, child: str) -> str:
        if machine.name != DRIVER:
            return host.core.host
        self.dealt += 1
        return child if self.host_count is None else f"host-{(self.dealt - 1) % self.host_count}"

    def _stop(self, host: SimHost, machine: Machine, name: str) -> None:
        if name == machine.name:
            host.core.stop(machine)
        else:
            self.control.append(("halt_machine", self.places[name], name))
        self.control += [("learn_stopped", other, (name,)) for other in self.hosts if other != host.core.host]


_OWN: dict[str, Callable[..., None]] = {
    "accept": HostedWorld._accept_next,
    "resume": HostedWorld._resume_machine,
    "timeout": HostedWorld._time_out,
    "birth": HostedWorld._be_born,
    "fire": HostedWorld._fire_timer,
    "crash": HostedWorld._lose,
}

_ALL: dict[str, Callable[..., Any]] = {
    **STEPS,
    **_OWN,
    "deliver": HostedWorld._deliver,
    "flush": HostedWorld._flush,
}
