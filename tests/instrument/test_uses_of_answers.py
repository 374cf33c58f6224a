"""What becomes of an answer in a program: read from the source around the place that asks."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path
from typing import Any

import pytest

from ray_snapshot.instrument.process.answer_uses import Use, asking

CASES = {
    "while (found := ask()) is None:\n    sleep()": Use.UNTIL,
    "while not ask():\n    sleep()": Use.UNTIL,
    "while ask() < 8:\n    sleep()": Use.UNTIL,
    "found = None\nwhile not found:\n    found = ask()\n    sleep()": Use.UNTIL,
    "while True:\n    found = ask()\n    if found is not None:\n        break\n    sleep()": Use.UNTIL,
    "while not all(ask() for one in [1, 2]):\n    sleep()": Use.UNTIL,
    "while True:\n    found = ask()\n    if found:\n        seen.append(found)\n        break\n    sleep()": Use.UNTIL,
    "while not ask():\n    print(f'{seen}')\n    sleep()": Use.UNTIL,
    "while not ask():\n    seen.append(1)\n    sleep()": Use.OPEN,
    "while not ask():\n    tries = tries + 1\n    sleep()": Use.OPEN,
    "while not ask(stop.is_set()):\n    sleep()": Use.OPEN,
    "while not ask():\n    stop.is_set()\n    sleep()": Use.OPEN,
    "while True:\n    if not ask():\n        raise ValueError\n    sleep()": Use.OPEN,
    "while True:\n    assert ask() != 'ok'\n    sleep()": Use.OPEN,
    "while not stop.is_set():\n    found = ask()\n    if found:\n        break\n    sleep()": Use.OPEN,
    "while True:\n    for one in [1, 2]:\n        found = ask()\n        seen.append(found)\n    sleep()": Use.OPEN,
    "while True:\n    if once():\n        break\n    sleep()": Use.UNTIL,
    "while True:\n    handle()\n    sleep()": Use.OPEN,
    "while True:\n    ask()\n    sleep()": Use.DROPPED,
    "for _ in range(60):\n    if ask():\n        break\n    sleep()": Use.BOUNDED,
    "while clock() < 10 and not ask():\n    sleep()": Use.BOUNDED,
    "left = 60\nwhile left:\n    if ask():\n        break\n    left -= 1\n    sleep()": Use.BOUNDED,
    "while not ask():\n    tries += 1\n    if tries > 60:\n        raise TimeoutError\n    sleep()": Use.BOUNDED,
    "found = ask()\nprint(found)": Use.ONCE,
}


class Asked(Exception):
    """In place of an answer."""


@pytest.mark.parametrize("source", CASES)
def test_a_loop_that_ends_by_its_answer_alone_is_told_from_others(tmp_path: Path, source: str) -> None:
    file = tmp_path / "program.py"
    whole = "def once():\n    return ask()\n\ndef handle():\n    found = ask()\n    print(found)\n\ndef run():\n"
    whole += "    tries, seen = 0, []\n" + textwrap.indent(source, "    ") + "\n"
    file.write_text(whole)
    ast.parse(whole)

    def ask(*_: Any) -> Any:
        raise Asked

    class Stop:
        def is_set(self) -> bool:
            return False

    names: dict[str, Any] = {"ask": ask, "sleep": lambda: None, "clock": lambda: 0.0, "stop": Stop()}
    exec(compile(whole, str(file), "exec", dont_inherit=True), names)
    with pytest.raises(Asked) as raised:
        names["run"]()
    frames = [one for one in iter_frames(raised.value) if one.f_code.co_filename == str(file)]
    found = asking(frames[-1])
    assert found is not None
    assert found.use is CASES[source]


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
    found = asking(names["run"]())
    assert found is not None
    assert found.use is Use.UNKNOWN
