"""Every order of the steps of a protocol that takes one snapshot of the user's machines; judged are the snapshots.

Never imports Ray unless a machine calls.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from typing import Any

from ray_snapshot.errors import SettingError
from ray_snapshot.simulation.mail.hosts import Step
from ray_snapshot.testing.exploring import Counterexample, Exploration, Progress, Report, listed
from ray_snapshot.testing.hosted import HostedWorld
from ray_snapshot.testing.hosted_runs import Interpreter, Player, check_hosts, replay_hosted
from ray_snapshot.testing.judging import judge_of
from ray_snapshot.testing.memory import Memory, Pace, seldom_collected
from ray_snapshot.testing.schedules import Schedule, frozen
from ray_snapshot.testing.stage import Stage

EAGER = ("flush", "report", "late")
"""Steps that are taken as soon as they can be: when they happen changes nothing."""


def explore_hosted(
    build: Callable[[Any], object],
    protocol: str,
    *,
    always: Any,
    never: Any,
    eventually: Any,
    most_states: int,
    progress: Progress | None = None,
) -> Exploration:
    """Every order of the steps of a protocol that takes one snapshot, breadth first; judged are the snapshots.

    The snapshot is asked for once the machines are built, and everything that hosts do is a step: so this is for the
    smallest systems, and bounded.
    """
    check_hosts(protocol, None)
    if listed(eventually):
        raise SettingError(
            "explore(protocol=...): judged are snapshots, of which none is the last: leave eventually out"
        )
    for has_clock in (False, True):
        with Stage(build) as stage, seldom_collected():
            found = _HostedSearch(stage, protocol, always, never, most_states, progress, has_clock=has_clock).run()
            if has_clock or not stage.asked_clock:
                return found
    raise AssertionError("a search with the clock is not begun anew")


class _HostedSearch:
    def __init__(
        self,
        stage: Stage,
        protocol: str,
        always: Any,
        never: Any,
        most_states: int,
        progress: Progress | None,
        *,
        has_clock: bool,
    ) -> None:
        self.stage, self.protocol, self.most_states = stage, protocol, most_states
        self.progress, self.has_clock = progress, has_clock
        self.player = Player(stage, {"protocol": protocol, "hosts": None, "crashes": 0}, _no_chance)
        self.reader = Interpreter(stage)
        self.wrong = [
            *((judge_of(item, self.reader.space, self.reader.shown), False) for item in listed(always)),
            *((judge_of(item, self.reader.space, self.reader.shown), True) for item in listed(never)),
        ]
        self.unknown: dict[str, None] = {}
        """What could not be told of every snapshot."""

    def run(self) -> Exploration:
        """Search."""
        player = self.player
        player.take(("begin",))
        while player.world.is_being_built():
            steps = player.world.enabled()
            player.take(next(step for step in steps if step[0] not in ("accept", "fire", "resume", "timeout")))
        player.take(("snapshot",))
        start = player.world
        queue: list[tuple[bytes, tuple[Any, ...]]] = [(pickle.dumps(start, pickle.HIGHEST_PROTOCOL), ())]
        seen, place = {start.mark(has_clock=self.has_clock)}, 0
        began, pace, memory = time.perf_counter(), Pace(), Memory()
        why = [f"it is bounded: one snapshot under {self.protocol}, asked for at the beginning"]
        while place < len(queue) and len(queue) < self.most_states:
            if pace.is_due():
                if self.progress is not None:
                    self.progress(Report(len(seen), place, len(queue[place][1]), time.perf_counter() - began))
                if (told := memory.is_short()) is not None:
                    why.append(told)
                    break
            saved, way = queue[place]
            queue[place] = b"", way
            place += 1
            for step in pickle.loads(saved).enabled():
                after: HostedWorld = pickle.loads(saved)
                after.stage, after.draw = self.stage, _no_chance
                path = (*way, step, *_taken_eagerly(after, step))
                mark = after.mark(has_clock=self.has_clock)
                if mark in seen:
                    continue
                seen.add(mark)
                if (found := self._judge(after)) is not None:
                    return Exploration(len(seen), False, self._counterexample(*found, path), why)
                queue.append((pickle.dumps(after, pickle.HIGHEST_PROTOCOL), path))
        if len(queue) >= self.most_states:
            why.append(f"it was stopped at most_states={self.most_states:,}")
        why += [f"{name} could not be told of every snapshot" for name in self.unknown]
        why += self.stage.not_followed()
        return Exploration(len(seen), False, None, why, executions=self.stage.executions)

    def _judge(self, world: HostedWorld) -> tuple[str, str] | None:
        if world.failure is not None:
            return "no action raises", world.failure
        for recorded in world.central.completed:
            state = self.reader.state(recorded)
            for judge, wrong in self.wrong:
                holds = judge.holds(state)
                if holds is wrong:
                    return judge.name, judge.sentence(state)
                if holds is None:
                    self.unknown[judge.name] = None
        return None

    def _counterexample(self, name: str, sentence: str, path: tuple[Step, ...]) -> Counterexample:
        steps = [*self.player.steps, *([*step, []] for step in path)]
        schedule = Schedule(tuple(frozen(steps)), self.player.settings)
        run = replay_hosted(self.stage.build, schedule)
        return Counterexample(name, sentence, run.steps, schedule, None, True, run.events)


def _taken_eagerly(world: HostedWorld, step: Step) -> list[Step]:
    """Take a step, and then all those whose moment does not matter: they bring batches onto the network, and parts home."""
    world.perform(step)
    taken: list[Step] = []
    while True:
        steps = [one for one in world.enabled() if one[0] in EAGER]
        steps += [("control", place) for place, one in enumerate(world.control) if one[0] in ("part", "close")]
        if not steps:
            return taken
        world.perform(steps[0])
        taken.append(steps[0])


def _no_chance(options: int) -> int:
    raise SettingError(
        f"explore(protocol=...): a machine asks self.random for one of {options}: leave protocol out, then all are tried"
    )
