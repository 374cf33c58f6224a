"""The truth about small systems, found by playing them, slowly and obviously; shares no code with detectors.

A system is the rows that `Snapshot.from_rows` takes. Everybody who is awake sends one message to everybody,
again and again: who is still asleep when nothing changes any more can never be woken, whatever anybody does.
"""

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ray_snapshot import Snapshot

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = datetime(2026, 1, 1, 13, tzinfo=UTC)
BEFORE = datetime(2026, 1, 1, 11, tzinfo=UTC)


@dataclass
class Game:
    """A system by hand, and its snapshot."""

    machines: list[dict[str, Any]]
    waits: list[dict[str, Any]] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    uncovered: list[Any] = field(default_factory=list)

    def snapshot(self) -> Snapshot:
        return Snapshot.from_rows(
            machines=[dict(row) for row in self.machines],
            waits=[dict(row) for row in self.waits],
            messages=[dict(row) for row in self.messages],
            coverage={"uncovered": self.uncovered},
            started_at=NOW,
        )

    def status(self, name: str) -> str | None:
        return next((row["status"] for row in self.machines if row["machine"] == name), None)

    def names(self, status: str) -> list[str]:
        return [row["machine"] for row in self.machines if row["status"] == status]

    def conditions(self, name: str) -> list[tuple[int, list[tuple[str, bool]]]]:
        """Each sufficient condition of a machine: (k, [(on whom, already satisfied)])."""
        written = {(message["source"], message["target"]) for message in self.messages}
        rows = [row for row in self.waits if row["machine"] == name]
        if rows:
            found = []
            for alternative in sorted({row["alternative"] for row in rows}):
                mine = [row for row in rows if row["alternative"] == alternative]
                pairs = [(row["on_machine"], self._satisfied(row, written)) for row in mine]
                found.append((mine[0]["k"], pairs))
            return found
        machine = next(row for row in self.machines if row["machine"] == name)
        on = machine.get("waits_for") or []
        if not on:
            return []
        k = {"all": len(on), "any": 1, "k_of_n": machine.get("wait_k")}[machine["wait_mode"]]
        return [(k, [(other, (other, name) in written) for other in on])]

    @staticmethod
    def _satisfied(row: dict[str, Any], written: set[tuple[str, str]]) -> bool:
        known = row.get("satisfied")
        return (row["on_machine"], row["machine"]) in written if known is None else known

    def has_timeout(self, name: str) -> bool:
        return any(row["machine"] == name and row.get("timeout_at") for row in self.waits)

    def timer_pending(self, name: str) -> bool:
        return any(
            message["target"] == name
            and message["kind"] == "timer"
            and (message.get("due_at") is None or message["due_at"] >= NOW)
            for message in self.messages
        )


def who_moves(game: Game, *, outsiders: bool) -> set[str]:
    """Everybody who may ever be awake; `outsiders`: what was not recorded may send to anybody passive too."""
    awake = set(game.names("active"))
    for name in [*game.names("passive"), *game.names("blocked")]:
        if game.timer_pending(name):
            awake.add(name)
    for name in game.names("passive"):
        if any(message["target"] == name for message in game.messages):
            awake.add(name)
    awake |= {name for name in game.names("blocked") if game.has_timeout(name)}
    if outsiders:
        awake |= _outsiders(game)
    while True:
        woken = _round(game, awake, outsiders)
        if woken <= awake:
            return awake
        awake |= woken


def _round(game: Game, awake: set[str], outsiders: bool) -> set[str]:
    woken = set()
    if awake or (outsiders and unseen(game)):
        woken |= set(game.names("passive"))
    for name in game.names("blocked"):
        for k, pairs in game.conditions(name):
            answers = [on for on, satisfied in pairs if satisfied or on in awake]
            if len(answers) >= k:
                woken.add(name)
    return woken


def unseen(game: Game) -> bool:
    return (
        bool(game.uncovered) or bool(_outsiders(game)) or any(game.status(m["target"]) is None for m in game.messages)
    )


def _outsiders(game: Game) -> set[str]:
    """Whoever is waited for without being recorded, whose wait is not known, or whom `uncovered` names."""
    found = set()
    for name in game.names("blocked"):
        conditions = game.conditions(name)
        if not conditions:
            found.add(name)
        found |= {on for _, pairs in conditions for on, _ in pairs if game.status(on) is None}
    for item in game.uncovered:
        name = item["machine"] if isinstance(item, dict) else item
        if game.status(name) is not None:
            found.add(name)
    return found


def deadlocked(game: Game) -> tuple[bool | None, set[str]]:
    """(answer, blocked machines that are stuck for good, or would be without outsiders)."""
    blocked = set(game.names("blocked"))
    alone = blocked - who_moves(game, outsiders=False)
    helped = blocked - who_moves(game, outsiders=True)
    if helped:
        return True, helped
    return (None, alone) if alone else (False, set())


def edges(game: Game, stuck: set[str]) -> dict[str, set[str]]:
    """Who of the stuck still waits for whom."""
    return {
        name: {on for _, pairs in game.conditions(name) for on, satisfied in pairs if not satisfied} for name in stuck
    }


def cores(game: Game, stuck: set[str], awake: set[str]) -> set[frozenset[str]]:
    """The sets that nobody in them can leave, following every edge; those waiting for idle ones are one."""
    waits_for = edges(game, stuck)
    reach = {name: _reach(name, waits_for, stuck) for name in stuck}
    found = set()
    for name in stuck:
        if all(name in reach[other] for other in reach[name]):
            found.add(frozenset({name} | reach[name]))
    idle = set(game.names("passive")) - awake
    lone = {core for core in found if any(waits_for[name] & idle for name in core)}
    return (found - lone) | ({frozenset().union(*lone)} if lone else set())


def _reach(name: str, waits_for: dict[str, set[str]], stuck: set[str]) -> set[str]:
    found: set[str] = set()
    todo = [name]
    while todo:
        for other in waits_for[todo.pop()] & stuck:
            if other not in found:
                found.add(other)
                todo.append(other)
    return found


def random_game(seed: int) -> Game:
    """A system of one to seven machines with everything in it that a snapshot can record."""
    chance = random.Random(seed)
    names = [f"m{number}" for number in range(chance.randint(1, 7))]
    chance.shuffle(names)
    weights = chance.choice([(0, 0, 10, 1), (1, 2, 8, 1), (0, 4, 8, 1), (2, 4, 4, 1)])
    game = Game([{"machine": name, "status": _pick(chance, weights)} for name in names])
    strangers = ["ghost"] if chance.random() < 0.15 else []
    for machine in game.machines:
        if machine["status"] == "blocked":
            _add_wait(chance, game, machine, names + strangers)
    for _ in range(chance.choice([0, 0, 0, 1, 2])):
        game.messages.append(_message(chance, names + strangers))
    if chance.random() < 0.2:
        game.uncovered = chance.choice([["plain tasks"], [{"machine": names[0], "what": "threads"}], [names[-1]]])
    return game


def _pick(chance: random.Random, weights: tuple[int, ...]) -> str:
    return chance.choices(["active", "passive", "blocked", "stopped"], weights)[0]


def _add_wait(chance: random.Random, game: Game, machine: dict[str, Any], names: list[str]) -> None:
    kind = chance.random()
    if kind < 0.03:
        return
    if kind < 0.3:
        on = chance.sample(names, chance.randint(1, min(3, len(names))))
        machine.update(waits_for=on, wait_mode=chance.choice(["all", "any", "k_of_n"]))
        machine["wait_k"] = {"all": len(on), "any": 1, "k_of_n": chance.randint(1, len(on))}[machine["wait_mode"]]
        return
    for alternative in range(chance.choice([1, 1, 1, 2, 3])):
        on = chance.sample(names, chance.randint(1, min(3, len(names))))
        k = chance.choice([1, len(on), chance.randint(1, len(on) + 1)])
        game.waits += [
            {
                "machine": machine["machine"],
                "alternative": alternative,
                "k": k,
                "on_machine": other,
                "satisfied": chance.choice([False] * 8 + [True, None, None]),
                "timeout_at": LATER if chance.random() < 0.02 else None,
            }
            for other in on
        ]


def _message(chance: random.Random, names: list[str]) -> dict[str, Any]:
    if chance.random() < 0.3:
        name = chance.choice(names)
        return {"source": name, "target": name, "kind": "timer", "due_at": chance.choice([None, BEFORE, LATER])}
    return {"source": chance.choice(names), "target": chance.choice(names), "kind": chance.choice(["mail", "call"])}
