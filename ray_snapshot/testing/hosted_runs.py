"""Runs of the user's machines on simulated hosts: steps are taken and written down, and the snapshots shown.

Read `hosted` first. Never imports Ray unless a machine calls.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ray_snapshot.errors import RaySnapshotError, ScheduleError, SettingError
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.choosing import BARRIERS, PROTOCOLS, RECORDED_BY
from ray_snapshot.simulation.mail.hosts import Step
from ray_snapshot.simulation.mail.oracle import RecordedSnapshot
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.testing.acts import Around
from ray_snapshot.testing.history import Told
from ray_snapshot.testing.hosted import HostedWorld
from ray_snapshot.testing.memory import seldom_collected
from ray_snapshot.testing.records import CHANNEL, MACHINE, TIMERS, Here, Inside, Rest, State, When, exact
from ray_snapshot.testing.rows import Shown
from ray_snapshot.testing.runs import Forced, Run
from ray_snapshot.testing.schedules import Schedule, check_steps
from ray_snapshot.testing.space import Space
from ray_snapshot.testing.stage import Stage
from ray_snapshot.verdicts import Standards
from ray_snapshot.views.space_time import Cut
from ray_snapshot.witness.log import short

SNAPSHOT_CHANCE = 0.05
"""How readily chance starts the next snapshot, a step."""


class Interpreter:
    """Recorded snapshots of a hosted world as snapshots, by way of the states that they are."""

    def __init__(self, stage: Stage) -> None:
        self.space = Space(stage)
        self.shown = Shown(self.space)

    def state(self, recorded: RecordedSnapshot) -> State:
        """The state that a snapshot is."""
        space, cells = self.space, {0: self.space.id_of(Here(Around(), None))}
        for name, record in recorded.states.items():
            cells[space.cell(MACHINE, name)] = space.id_of(exact(record))
        for (_, child), unborn in recorded.payloads.items():
            cells[space.cell(MACHINE, child)] = space.id_of(exact(unborn))
        for channel, messages in recorded.channels.items():
            mails = tuple(space.id_of(exact(mail)) for _, _, mail in messages)
            is_timer = channel[2] == "timer"
            value = tuple((When(0.0, 0), mail) for mail in mails) if is_timer else mails
            cells[space.cell(TIMERS if is_timer else CHANNEL, channel)] = space.id_of(value)
        return tuple(cells.get(cell, 0) for cell in range(len(space.cells)))

    def snapshot(self, recorded: RecordedSnapshot, protocol: str) -> Snapshot:
        """A recorded snapshot as one."""
        rows = self.shown.rows(self.state(recorded))
        numbers = {channel: [number for number, _, _ in messages] for channel, messages in recorded.channels.items()}
        place: Counter[tuple[str, str, str]] = Counter()
        for row in rows["messages"]:
            channel = row["source"], row["target"], row.get("kind", "mail")
            if row["number"]:
                row["number"] = numbers[channel][place[channel]]
                place[channel] += 1
        creations = {(creator, child, "mail") for creator, child in recorded.creations}
        rows["channels"] = [
            {
                "source": channel[0], "target": channel[1], "kind": channel[2],
                "sent_count": recorded.sent.get(channel, 0), "accepted_count": recorded.accepted.get(channel, 0),
                "in_flight_count": len(numbers.get(channel, ())), "duplicate_count": recorded.duplicates.get(channel, 0),
                "recorded_by": RECORDED_BY[protocol],
            }
            for channel in sorted({*recorded.sent, *recorded.accepted, *creations})
        ]  # fmt: skip
        about: dict[str, Any] = {"snapshot_id": f"snapshot-{recorded.number}", "system": "testing", "run_id": "testing"}
        return Snapshot.from_rows(**rows, **about, sequence=recorded.number, protocol=protocol,
                                  consistent=not recorded.duplicates)  # fmt: skip


# ---- one run ---------------------------------------------------------------------------------------------------------


def check_hosts(protocol: str, hosts: int | None) -> None:
    if protocol not in PROTOCOLS:
        raise SettingError(f"there is no protocol {protocol!r}; there are {', '.join(PROTOCOLS)}")
    if hosts is not None and (not isinstance(hosts, int) or hosts < 1):
        raise SettingError(f"hosts={hosts}: machines need one host at least")


class Player:
    """Takes the steps of one run, and writes them down."""

    def __init__(self, stage: Stage, settings: dict[str, Any], chance: Callable[[int], int]) -> None:
        self.drawn: list[int] = []
        self.chance = chance
        self.settings = settings
        self.steps: list[tuple[Any, ...]] = []
        self.world = HostedWorld(stage, self._draw, settings["protocol"], settings["hosts"])
        self.connected = 0
        self.has_barriers = settings["protocol"] in BARRIERS

    def _draw(self, options: int) -> int:
        found = self.chance(options)
        self.drawn.append(found)
        return found

    def take(self, step: Step) -> None:
        """One step."""
        self.drawn.clear()
        world = self.world
        if step[0] == "begin":
            world.begin()
        else:
            world.perform(step)
        if not world.unbuilt:
            world.go_on()
            if self.has_barriers:
                self._connect()
        self.steps.append((*step, tuple(self.drawn) if self.drawn else ()))

    def _connect(self) -> None:
        connections = self.world.stage.connections
        for source, target in connections[self.connected :]:
            self.world.connect(source, target)
        self.connected = len(connections)

    def run(self, stage: Stage, detectors: Sequence[Any], seed: int | None, is_over: bool) -> Run:
        """What has come of it."""
        world, found = self.world, Interpreter(stage)
        protocol = self.settings["protocol"]
        completed = sorted(world.central.completed, key=lambda recorded: recorded.number)
        snapshots = [found.snapshot(recorded, protocol) for recorded in completed]
        standards = Standards()
        verdicts = [standards.evaluate(item, one, evaluator="testing") for one in snapshots for item in detectors]
        machines = {}
        for name, record in sorted(world.states().items()):
            if name != DRIVER and isinstance(record, Rest | Inside):
                cell = found.space.cell(MACHINE, name)
                machines[name] = found.shown.object(cell, found.space.id_of(exact(record)))
        cuts = [Cut(f"snapshot {number}", dict(cut)) for number, cut in sorted(world.log.cuts.items())]
        return Run(
            machines, Schedule(tuple(self.steps), self.settings), Told(world.done), seed, snapshots, verdicts,
            world.failure, is_over, cuts,
        )  # fmt: skip


def simulate_hosted(
    build: Callable[[Any], object],
    *,
    seed: int,
    protocol: str,
    detectors: Sequence[Any],
    snapshots: int,
    hosts: int | None,
    crashes: int,
    most_steps: int,
) -> Run:
    """`testing.simulate`."""
    from ray_snapshot.verdicts import check_detector

    check_hosts(protocol, hosts)
    if snapshots < 0 or crashes < 0 or most_steps < 1:
        raise SettingError(
            f"simulate: snapshots={snapshots} and crashes={crashes} are 0 or more, most_steps={most_steps} is 1 or more"
        )
    judges = [check_detector(item) for item in detectors]
    chance = random.Random(seed)
    settings = {"protocol": protocol, "hosts": hosts, "crashes": crashes}
    with Stage(build, is_one_run=True) as stage, seldom_collected():
        player = Player(stage, settings, chance.randrange)
        is_over = _play(player, chance, snapshots, crashes, most_steps)
        return player.run(stage, judges, seed, is_over)


def _play(player: Player, chance: random.Random, snapshots: int, crashes: int, most_steps: int) -> bool:
    """Let a run happen; returns whether there is nothing left to happen."""
    world = player.world
    player.take(("begin",))
    for _ in range(most_steps):
        if world.failure is not None:
            return False
        steps = world.enabled()
        if world.unbuilt:
            steps = [step for step in steps if step[0] not in ("accept", "fire", "resume", "timeout")] or steps
        else:
            is_idle = not steps
            if snapshots and (is_idle or chance.random() < SNAPSHOT_CHANCE):
                player.take(("snapshot",))
                snapshots -= 1
                continue
            if crashes and chance.random() < SNAPSHOT_CHANCE:
                alive = [name for name, host in sorted(world.hosts.items()) if name != DRIVER and not host.is_down]
                if alive:
                    player.take(("crash", chance.choice(alive)))
                    crashes -= 1
                    continue
        if not steps:
            return True
        player.take(chance.choice(steps))
    for _ in range(most_steps):  # machines stop where they are, and what was begun of snapshots comes to its end
        steps = [step for step in world.enabled() if step[0] not in ("accept", "fire", "resume", "timeout", "birth")]
        if not world.central.coordinator.pending or not steps:
            break
        player.take(steps[0])
    return False


def replay_hosted(build: Callable[[Any], object], schedule: Schedule) -> Run:
    """`testing.replay` of a schedule of a run under a protocol."""
    forced = Forced()
    check_steps(schedule)
    settings = {"hosts": None, **schedule.settings}
    check_hosts(settings["protocol"], settings["hosts"])
    with Stage(build, is_one_run=True) as stage, seldom_collected():
        player = Player(stage, settings, forced)
        for number, raw in enumerate(schedule.steps, 1):
            *step, drawn = raw
            forced.left = [*drawn]
            try:
                player.take(tuple(step))
            except RaySnapshotError:
                raise
            except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
                raise ScheduleError(
                    f"step {number} of the schedule, {short(step)}, cannot be taken here: it is of other machines, or they"
                    " have changed",
                    step=number,
                ) from error
            forced.check(number)
        return player.run(stage, (), None, not player.world.enabled())
