"""Machines whose actions call each other and wait inside: nested calls, lists, errors, refs that are kept, `finally`."""

from typing import Any

import ray

import ray_snapshot as rs


class Refused(ValueError):
    """What a vault says that has too little."""


class Vault(rs.SnapshotMixin):
    """Holds coins, and gives them to who calls; a hasty one forgets to take them off."""

    def __init__(self, coins: int, is_hasty: bool = False) -> None:
        self.coins = coins
        self.is_hasty = is_hasty
        self.asked = 0

    def draw(self, amount: int) -> int:
        self.asked += 1
        if amount > self.coins:
            raise Refused(f"{amount} of {self.coins}")
        self.coins -= 0 if self.is_hasty else amount
        return amount

    def add(self, amount: int) -> None:
        self.coins += amount

    def look(self) -> dict[str, Any]:
        return {"coins": self.coins, "asked": (self.asked, self)[0]}

    def odd(self) -> Any:
        return (item for item in ())


class Clerk(rs.SnapshotMixin):
    """Draws from vaults, and tells others; all that it learns decides what it does next. Chance is part of its state."""

    def __init__(self, vaults: list[Any], others: list[Any], rounds: int, seed: int) -> None:
        self.vaults = vaults
        self.others = others
        self.rounds = rounds
        self.luck = seed
        self.coins = 0
        self.busy = False
        self.log: list[Any] = []
        self.kept: list[Any] = []

    def work(self) -> None:
        if not self.rounds:
            return
        self.rounds -= 1
        self.busy = True
        try:
            (self._one, self._list, self._first, self._through, self._keep)[self._draw(5)]()
        except (Refused, ray.exceptions.RayTaskError) as error:
            self.log.append([type(error).__name__, isinstance(error, Refused), "of" in str(error)])
        finally:
            self.busy = False
            self._pick(self.others).hear.send(self.coins)
        self.handle.work.send()

    def _one(self) -> None:
        """Several waits in a row, with sends in between."""
        for _ in range(2):
            vault = self._pick(self.vaults)
            self.coins += ray.get(vault.draw.remote(1 + self._draw(5)))
            vault.add.send(1)
            self.coins -= 1

    def _list(self) -> None:
        said = ray.get([vault.look.remote() for vault in self.vaults])
        richest = max(range(len(said)), key=lambda place: (said[place]["coins"], place))
        self.coins += ray.get(self.vaults[richest].draw.remote(3))

    def _first(self) -> None:
        refs = [vault.look.remote() for vault in self.vaults]
        there, rest = ray.wait(refs, num_returns=1)
        self.log.append([len(there), len(rest)])
        self.coins += ray.get(self.vaults[refs.index(there[0])].draw.remote(1))

    def _through(self) -> None:
        """A call that waits for another: errors come through both."""
        self.coins += ray.get(self._pick(self.others).fetch.remote(self._pick(self.vaults), 40 * self._draw(2) + 1))

    def _keep(self) -> None:
        """A call now, its result in another action."""
        if self.kept:
            self.log.append(ray.get(self.kept.pop())["coins"])
        self.kept.append(self._pick(self.vaults).look.remote())

    def fetch(self, vault: Any, amount: int) -> int:
        return 0

    def hear(self, coins: int) -> None:
        self.log = [*self.log[-5:], coins]

    def _pick(self, among: list[Any]) -> Any:
        return among[self._draw(len(among))]

    def _draw(self, limit: int) -> int:
        self.luck = (self.luck * 6_364_136_223_846_793_005 + 1_442_695_040_888_963_407) % 2**64
        return (self.luck >> 33) % limit


class Porter(rs.SnapshotMixin):
    """Fetches from a vault for a clerk, and waits meanwhile; takes note of what it hears."""

    def __init__(self) -> None:
        self.fetched: list[int] = []
        self.heard = 0

    def fetch(self, vault: Any, amount: int) -> int:
        self.fetched = [*self.fetched[-3:], amount]
        found: int = ray.get(vault.draw.remote(amount))
        self.fetched.append(-found)
        return found

    def hear(self, coins: int) -> None:
        self.heard += coins


class Asker(rs.SnapshotMixin):
    """Waits in ways of its own."""

    def __init__(self) -> None:
        self.found: list[Any] = []

    def odd(self, vault: Any) -> None:
        try:
            ray.get(vault.odd.remote())
        except Exception as error:
            self.found.append(type(error).__name__)

    def hurry(self, vault: Any) -> None:
        self.found.append(ray.get(vault.look.remote(), timeout=30)["coins"])

    def two(self, one: Any, other: Any) -> None:
        """Both refuse."""
        try:
            ray.get([one.draw.remote(98), other.draw.remote(99)])
        except Refused as error:
            self.found.append(str(error))

    def shut(self, one: Any, other: Any) -> None:
        """One has closed before, the other is told to close by who learns that."""
        try:
            ray.get([other.look.remote(), one.look.remote()])
        except rs.errors.MachineStoppedError as error:
            self.found.append(error.machine)
            other.close.send()

    def late(self, other: Any) -> None:
        """Nobody answers: the other waits for this one."""
        ref = other.back.remote(self.handle)
        try:
            ray.get(ref, timeout=0.05)
        except ray.exceptions.GetTimeoutError:
            self.found.append("late")
        self.found.append(len(ray.wait([ref], timeout=0.05)[0]))

    def back(self, other: Any) -> int:
        found: int = ray.get(other.size.remote())
        return found

    def size(self) -> int:
        return len(self.found)

    def foreign(self) -> None:
        self.found.append(ray.get(ray.put(3)))

    def lock(self, other: Any) -> None:
        """Two that do this to each other wait for ever."""
        self.found.append("locked")
        self.found.append(ray.get(other.size.remote()))

    def swallow(self, vault: Any) -> None:
        vault.add.send(1)
        try:
            self.found.append(ray.get(vault.look.remote()))
        except BaseException:
            self.found.append("swallowed")

    def moody(self, vault: Any) -> None:
        MOODS.append(1)
        vault.add.send(len(MOODS))
        self.found.append(ray.get(vault.look.remote()))


MOODS: list[int] = []
"""What machines must not decide by."""


class Shop(rs.SnapshotMixin):
    """Says between its actions for whom it waits; closes when it is told to."""

    def __init__(self) -> None:
        self.wants: Any = None

    def want(self, other: Any) -> None:
        self.wants = other

    def waiting_for(self) -> Any:
        return None if self.wants is None else rs.all_of(self.wants)

    def look(self) -> int:
        return 1

    def close(self) -> None:
        self.stop()


class Runner(rs.SnapshotMixin):
    """Draws twice in one action, and says so in between."""

    def __init__(self, vault: Any, porter: Any) -> None:
        self.vault = vault
        self.porter = porter
        self.coins = 0
        self.is_busy = False

    def both(self, one: int, other: int) -> None:
        self.is_busy = True
        try:
            for amount in (one, other):
                self.coins += ray.get(self.vault.draw.remote(amount))
                self.porter.hear.send(self.coins)
        finally:
            self.is_busy = False


@rs.detector(stable=False, alarm_when=True)
def poor(snapshot: Any) -> bool:
    """A vault has given something."""
    return any(one.state.get("coins", 60) < 60 for name, one in snapshot.machines.items() if name.startswith("v"))
