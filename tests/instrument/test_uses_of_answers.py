"""What becomes of an answer in a program: read from the source around the place that asks."""

from __future__ import annotations

import ast
import itertools
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from ray_snapshot.instrument.process.answer_uses import Use, asking
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
    "while True:\n    if not ask():\n        raise ValueError\n    time.sleep(0)": Use.OPEN,
    "while True:\n    assert ask() != 'ok'\n    time.sleep(0)": Use.OPEN,
    "while not stop.is_set():\n    found = ask()\n    if found:\n        break\n    time.sleep(0)": Use.OPEN,
    "while True:\n    for one in [1, 2]:\n        found = ask()\n        seen.append(found)\n    time.sleep(0)": Use.OPEN,
    "while True:\n    if once():\n        break\n    time.sleep(0)": Use.UNTIL,
    "while True:\n    handle()\n    time.sleep(0)": Use.OPEN,
    "while True:\n    ask()\n    time.sleep(0)": Use.DROPPED,
    "for _ in range(60):\n    if ask():\n        break\n    time.sleep(0)": Use.BOUNDED,
    "while clock() < 10 and not ask():\n    time.sleep(0)": Use.BOUNDED,
    "left = 60\nwhile left:\n    if ask():\n        break\n    left -= 1\n    time.sleep(0)": Use.BOUNDED,
    "while not ask():\n    tries += 1\n    if tries > 60:\n        raise TimeoutError\n    time.sleep(0)": Use.BOUNDED,
    "found = ask()\nprint(found)": Use.ONCE,
    "while not wait(seen):\n    if ask():\n        raise RuntimeError": Use.WAITS,
    "while not late():\n    time.sleep(0)": Use.OPEN,
    "while tries < 60:\n    found = ask()\n    if found is None:\n        continue\n    tries += 1": Use.OPEN,
    "while tries < 60:\n    found = ask()\n    tries += 1": Use.BOUNDED,
    "while tries < 60:\n    tries = tries + (not ask())\n    time.sleep(0)": Use.OPEN,
    "while True:\n    found = ask()\n    if found or stop.stopped:\n        break\n    time.sleep(0)": Use.OPEN,
    "while not ask():\n    stop.info(3)\n    time.sleep(0)": Use.OPEN,
    "while not ask():\n    time.sleep(stop.pause)": Use.OPEN,
    "for one in itertools.cycle(seen):\n    if ask():\n        break": Use.OPEN,
}


class Asked(Exception):
    """In place of an answer."""


@pytest.mark.parametrize("source", CASES)
def test_a_loop_that_ends_by_its_answer_alone_is_told_from_others(tmp_path: Path, source: str) -> None:
    file = tmp_path / "program.py"
    whole = """
def once():
    return ask()

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

    def ask(*_: Any) -> Any:
        raise Asked

    class Stop:
        def is_set(self) -> bool:
            return False

    names: dict[str, Any] = {"ask": ask, "time": time, "clock": lambda: 0.0, "stop": Stop(), "wait": [].count}
    exec(compile(whole, str(file), "exec", dont_inherit=True), names)
    with pytest.raises(Asked) as raised:
        names["run"]()
    frames = [one for one in iter_frames(raised.value) if one.f_code.co_filename == str(file)]
    own = itertools.takewhile(lambda one: one.f_code.co_filename == str(file), outward(frames[-1]))
    assert asking(tuple((one.f_code, one.f_lasti) for one in own)).use is CASES[source]


def iter_frames(error: BaseException) -> list[Any]:
    frames, trace = [], error.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    return frames


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
    assert asking(((frame.f_code, frame.f_lasti),)).use is Use.UNKNOWN
