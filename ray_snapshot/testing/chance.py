"""`self.random` under `ray_snapshot.testing`: a generator whose every outcome is an input of the schedule."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from ray_snapshot.errors import NotAMachineError

_STEPS = 2**53
"""So many values `random()` has."""


class Chance(random.Random):
    """Asks for one of so many outcomes; all that `random.Random` offers is made of that."""

    def __init__(self, choose: Callable[[int], int]) -> None:
        self._choose = choose
        super().__init__(0)

    def seed(self, *_: Any, **__: Any) -> None:
        """Does nothing: chance is an input."""

    def random(self) -> float:
        """One of the 2**53 floats from 0 to 1 that the real one has."""
        return self._choose(_STEPS) / _STEPS

    def getrandbits(self, k: int, /) -> int:
        """An integer of `k` bits."""
        return self._choose(1 << k)

    def _randbelow(self, n: int) -> int:
        """What `choice`, `randrange`, `shuffle` and `sample` ask (see `random.Random.__init_subclass__`)."""
        return self._choose(n)

    def gauss(self, mu: float = 0.0, sigma: float = 1.0) -> float:
        """As the real one, which keeps half of what it has drawn for the next time; here nothing outlives an action."""
        self.gauss_next = None
        try:
            return super().gauss(mu, sigma)
        finally:
            self.gauss_next = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _current, ()


def _current() -> Any:
    from ray_snapshot.runtime.handles import POSTS
    from ray_snapshot.testing.stage import RUN

    stage: Any = POSTS.get(RUN)
    return Chance(_over) if stage is None else stage.chance


def _over(_: int) -> int:
    raise NotAMachineError("self.random is asked when the run is over: only a machine's own actions ask for chance")
