"""What becomes of an answer in a program: read from the source around the place that asks."""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ray_snapshot.instrument.process.answer_uses import SLEEP, WAIT, Place, Use, asking
from ray_snapshot.runtime.here import outward

CASES = {
    "while (found := ask()) is None:\n    time.sleep(0)": Use.UNTIL,
    "while not ask():\n    time.sleep(0)": Use.UNTIL,
    "while ask() < 8:\n    time.sleep(0)": Use.UNTIL,
    "found = None\nwhile not found:\n    found = ask()\n    time.sleep(0)": Use.UNTIL,
    "while True:\n    found = ask()\n    if found is not None:\n        break\n    time.sleep(0)": Use.UNTIL,
    "while not all(ask() for one in seen):\n    time.sleep(0)": Use.UNTIL,
    "while True:\n    found = ask()\n    if found:\n        seen.append(found)\n        break\n    time.sleep(0)": Use.UNTIL,
    "while not ask():\n    print(f'{seen}')\n    time.sleep(0)": Use.UNTIL,
    "while not ask() and not tries:\n    time.sleep(0)": Use.OPEN,
    "while True:\n    found = ask()\n    if found or tries:\n        break\n    time.sleep(0)": Use.OPEN,
    "while not ask():\n    seen.append(1)\n    time.sleep(0)": Use.OPEN,
    "while not ask():\n    tries = tries + 1\n    time.sleep(0)": Use.OPEN,
    "while not ask(stop.is_set()):\n    time.sleep(0)": Use.OPEN,
    "while not ask():\n    stop.is_set()\n    time.sleep(0)": Use.OPEN,
    "while True:\n    if not ask():\n        raise ValueError\n    time.sleep(0)": Use.WATCHED,
    "while True:\n    assert ask() != 'ok'\n    time.sleep(0)": Use.WATCHED,
    "while True:\n    if not ask():\n        raise ValueError\n    if tries:\n        break": Use.OPEN,
    "while seen:\n    for one in itertools.count():\n        seen.append(ask())": Use.OPEN,
    "while True:\n    for one in itertools.count():\n        seen.append(ask())": Use.WATCHED,
    "while not stop.is_set():\n    found = ask()\n    if found:\n        break\n    time.sleep(0)": Use.OPEN,
    "while True:\n    for one in [1, 2]:\n        found = ask()\n        seen.append(found)\n    time.sleep(0)": Use.WATCHED,
    "while True:\n    if once():\n        break\n    time.sleep(0)": Use.UNTIL,
    "while True:\n    handle()\n    time.sleep(0)": Use.WATCHED,
    "while True:\n    ask()\n    time.sleep(0)": Use.DROPPED,
    "for _ in range(60):\n    if ask():\n        break\n    time.sleep(0)": Use.BOUNDED,
    "while clock() < 10 and not ask():\n    time.sleep(0)": Use.BOUNDED,
    "left = 60\nwhile left:\n    if ask():\n        break\n    left -= 1\n    time.sleep(0)": Use.BOUNDED,
    "while not ask():\n    tries += 1\n    if tries > 60:\n        raise TimeoutError\n    time.sleep(0)": Use.BOUNDED,
    "found = ask()\nprint(found)": Use.ONCE,
    "while not late():\n    time.sleep(0)": Use.OPEN,
    "while tries < 60:\n    found = ask()\n    if found is None:\n        continue\n    tries += 1": Use.OPEN,
    "while tries < 60:\n    found = ask()\n    tries += 1": Use.BOUNDED,
    "while tries < 60:\n    tries = tries + (not ask())\n    time.sleep(0)": Use.OPEN,
    "while True:\n    found = ask()\n    if found or stop.stopped:\n        break\n    time.sleep(0)": Use.OPEN,
    "while not ask():\n    stop.info(3)\n    time.sleep(0)": Use.OPEN,
    "while not ask():\n    time.sleep(stop.pause)": Use.OPEN,
    "for one in itertools.cycle(seen):\n    if ask():\n        break": Use.OPEN,
}


IN_VAIN = {
    "while True:\n    try:\n        return ask()\n    except ValueError:\n        time.sleep(0)": Use.OPEN,
    "while True:\n    try:\n        ask()\n        break\n    except ValueError:\n        continue": Use.OPEN,
    "while True:\n    with suppress(ValueError):\n        return ask()\n    time.sleep(0)": Use.OPEN,
    "while tries < 9:\n    try:\n        ask()\n        tries += 1\n    except ValueError:\n        pass": Use.OPEN,
    "while tries < 9:\n    try:\n        tries += 1\n        ask()\n    except ValueError:\n        pass": Use.BOUNDED,
    "while True:\n    try:\n        return ask()\n    except ValueError:\n        tries += 1\n"
    "        if tries > 9:\n            raise": Use.BOUNDED,
    "while seen:\n    try:\n        ask()\n    except ValueError:\n        tries += 1\n    else:\n        break\n"
    "    if tries > 9:\n        break": Use.BOUNDED,
    "for _ in range(9):\n    try:\n        return ask()\n    except ValueError:\n        pass": Use.BOUNDED,
    "while True:\n    try:\n        ask()\n    except ValueError:\n        break": Use.ONCE,
    "try:\n    while True:\n        ask()\nexcept ValueError:\n    pass": Use.ONCE,
    "ask()": Use.ONCE,
    "while True:\n    try:\n        return once()\n    except ValueError:\n        time.sleep(0)": Use.OPEN,
    "while not attempt():\n    time.sleep(0)": Use.OPEN,
}
"""Where what is asked for is not there, which is an error."""

LATE = {
    "while seen:\n    ready, seen = ask()": Use.OPEN,
    "while tries < 9:\n    ready, seen = ask()\n    tries += len(ready)": Use.OPEN,
    "while tries < 9:\n    ready, seen = ask()\n    tries += 1": Use.BOUNDED,
    "while True:\n    ready, seen = ask()\n    left = len(seen)\n    if left < 1:\n        break": Use.OPEN,
    "while seen:\n    ask()": Use.DROPPED,
}
"""Where replies are asked for by `ray.wait`."""

TIMED = {
    "while not ask():\n    pass": (Use.OPEN, WAIT),
    "while seen:\n    ask()": (Use.OPEN, WAIT),
    "for _ in range(9):\n    if ask():\n        break": (Use.BOUNDED, WAIT),
    "while clock() < 10:\n    ask()": (Use.BOUNDED, WAIT),
    "ask()": (Use.ONCE, WAIT),
    "while not stop.is_set():\n    ask()": (Use.OPEN, SLEEP),
    "while True:\n    if stop.is_set():\n        break\n    print(len(seen))\n    ask()": (Use.OPEN, SLEEP),
    "while seen:\n    seen.append(1)\n    ask()": (Use.ONCE, SLEEP),
    "while True:\n    stop.is_set()\n    ask()": (Use.ONCE, SLEEP),
    "while not clock():\n    ask()": (Use.OPEN, SLEEP),
    "while clock() is None or not clock():\n    ask()": (Use.ONCE, SLEEP, True),
    "while True:\n    if clock():\n        break\n    ask()": (Use.ONCE, SLEEP, True),
    "while not (stop.is_set() or ask()):\n    pass": (Use.OPEN, WAIT, True),
}
"""Where a call, or an idle thread, waits with a timeout, or sleeps."""

ALL = [(*one, "") for one in CASES.items()] + [(source, use, *how) for source, (use, *how) in TIMED.items()]
ALL += [(*one, "ray.get") for one in IN_VAIN.items()] + [(*one, "ray.wait") for one in LATE.items()]


class Asked(Exception):
    """In place of an answer."""


@pytest.mark.parametrize(("source", "use", "how"), [(source, use, how) for source, use, *how in ALL])
def test_a_loop_that_ends_by_its_answer_alone_is_told_from_others(
    tmp_path: Path, source: str, use: Use, how: list[Any]
) -> None:
    file = tmp_path / "program.py"
    whole = """
def once():
    return ask()

def attempt():
    try:
        return ask()
    except ValueError:
        return None

def handle():
    found = ask()
    print(found)

def run():
    import itertools
    late = lambda: ask() or stop.is_set()
    tries, seen = 0, [0]
"""
    whole += textwrap.indent(source, "    ") + "\n"
    file.write_text(whole)
    ast.parse(whole)

    chain = []

    def ask(*_: Any) -> Any:
        _, *callers = outward(inspect.currentframe())
        own = itertools.takewhile(lambda one: one.f_code.co_filename == str(file), callers)
        chain.extend([(one.f_code, one.f_lasti) for one in own])
        raise Asked

    class Stop:
        def is_set(self) -> bool:
            return False

    names: dict[str, Any] = {"ask": ask, "time": time, "clock": lambda: 0.0, "stop": Stop(), "suppress": suppress}
    exec(compile(whole, str(file), "exec", dont_inherit=True), names)
    with pytest.raises(Asked):
        names["run"]()
    assert asking(Place(tuple(chain), *how)).use is use


def test_without_a_source_it_is_not_known() -> None:
    names: dict[str, Any] = {}
    exec(
        compile(
            "import sys\ndef run():\n    while not sys._getframe():\n        pass\n    return sys._getframe()",
            "<none>",
            "exec",
        ),
        names,
    )
    frame = names["run"]()
    assert asking(Place(((frame.f_code, frame.f_lasti),))).use is Use.UNKNOWN
