"""Loops that ask, and calls that are parked until a later one ends that, at every moment of small apps: is what is said true?

A moment is a state, with what an earlier snapshot may have shown of it. Explain a change before you pin new counts.
"""

import itertools
import random
from collections import Counter
from contextlib import suppress

import pytest
from worlds.calls.asking import Actor, App, Program, Step
from worlds.calls.judging import check

ON, DONE, MORE = (("answer", "n", 1),), (("answer", "m", 1),), (("when", "n", 0, 1, 1),)
PUT, TAKE = (("when", "n", 0, 0, 1),), (("when", "n", 1, 1, -1),)
BOARD = Actor({"on": ON, "done": DONE, "more": MORE, "put": PUT, "take": TAKE}, {"n": 0, "m": 0})
BUFFER = BOARD._replace(slots=3)
SLOW, SLOW_BOARD = (Actor(BOARD.methods, BOARD.state, slots, times_out=True) for slots in (3, 1))
MAY_SET, MAY_PUT = (Actor({"go": (("may",), ("get", *call))}) for call in (("board", "more"), ("buffer", "put")))
TAKES = Actor({"go": (("get", "buffer", "take"), ("get", "board", "more"))})
NO_SLOT, PARKED = (("send", "board", "take"), ("get", "board", "put")), (("send", "a", "go"), ("get", "buffer", "take"))
SET, GO, UNTIL_ON = ("send", "setter", "go"), ("send", "a", "go"), ("until", (("board", "on"),))
TURNS, BOTH = ("until", (("a", "on"), ("board", "on"))), ("until", (("board", "on"), ("board", "done")))
A, B = (Actor({"go": (("until", ((by, "on"),)), *MORE), "on": ON}, {"n": 0}, slots=2) for by in "ba")
COUNTS = Actor({"on": (("tick", "c", 9), ("answer", "c", 9))}, {"c": 0})
APPS = {
    "they wait for each other": (App((GO, ("get", "b", "go")), a=A, b=B), (1457, 129, 335, 1, 0)),
    "it counts": (App((UNTIL_ON,), board=COUNTS), (174, 4, 97, 12, 0)),
    "one may set": (App((SET, UNTIL_ON), board=BOARD, setter=MAY_SET), (313, 87, 47, 2, 0)),
    "threads": (App((SET, UNTIL_ON), board=BUFFER._replace(has_threads=True), setter=MAY_SET), (333, 170, 59, 2, 0)),
    "by turns": (App((SET, TURNS), board=BOARD, a=BOARD, setter=MAY_SET), (877, 226, 133, 4, 0)),
    "two questions": (App((SET, BOTH), board=BOARD, setter=MAY_SET), (774, 206, 119, 4, 0)),
    "who sets is parked": (
        App((SET, GO, UNTIL_ON), board=BOARD, buffer=BUFFER, setter=TAKES, a=MAY_PUT),
        (2466, 498, 47, 2, 0),
    ),
    "parked": (App(PARKED, buffer=BUFFER, a=MAY_PUT), (57, 19, 0, 0, 1)),
    "parked with a timeout": (App(PARKED, buffer=SLOW, a=MAY_PUT), (57, 19, 1, 0, 0)),
    "so is who sets": (
        App((SET, GO, UNTIL_ON), board=BOARD, buffer=SLOW, setter=TAKES, a=MAY_PUT),
        (2466, 498, 49, 0, 0),
    ),
    "a timeout, no slot": (App(NO_SLOT, board=SLOW_BOARD), (21, 8, 1, 0, 0)),
    "no slot": (App(NO_SLOT, board=BOARD), (21, 7, 0, 0, 2)),
}


@pytest.mark.parametrize("name", APPS)
def test_what_is_said_of_polls_and_parked_calls_is_true(name: str) -> None:
    said, kinds = check(APPS[name][0]), ("moments", "does not hold", "cannot be told", "suspected", "proven")
    assert tuple(said[kind] for kind in kinds) == APPS[name][1]


@pytest.mark.nightly
@pytest.mark.parametrize("block", range(20))
def test_so_it_is_at_a_million_moments_of_apps_by_chance(block: int) -> None:
    said, seeds = Counter[str](), itertools.count(10_000 * block)
    while said["moments"] < 50_000:
        print(seed := next(seeds))
        with suppress(ValueError):  # it is too large
            said += check(app_by_chance(random.Random(seed)), most=10_000)
    assert min(said[kind] for kind in ("cannot be told", "suspected", "proven")) > 0


def app_by_chance(chance: random.Random) -> App:
    """Two or three actors that ask for a value of one, wait for one, or may change one, by themselves or through others."""
    pick, names = chance.choice, "abc"[: chance.randrange(2, 4)]

    def step(methods: tuple[str, ...]) -> Step:
        loop = "until", tuple((pick(names), pick(("on", "done"))) for _ in range(pick((1, 1, 2))))
        call = pick(("get", "send")), pick(names), pick(("put", "take", "more", *methods))
        return pick((loop, loop, ("may",), call, call, call))

    def program(*methods: str) -> Program:
        return tuple(step(methods) for _ in range(chance.randrange(1, 5)))

    def actor() -> Actor:
        on = (("tick", "c", 3), pick((("answer", "c", 3), *ON))) if chance.random() < 0.2 else ON
        methods = {**BOARD.methods, "on": on, "low": program(), "high": program("low", "low", "low")}
        kinds = pick((True, False, False)), pick((True, False))
        return Actor(methods, {"n": pick((0, 0, 1)), "m": 0, "c": 0}, pick((1, 1, 2, 3)), *kinds)

    return App(program("high", "high", "high"), **{name: actor() for name in names})
