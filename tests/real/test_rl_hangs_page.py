"""`docs/start/rl-hangs.md` shows what the product prints: each block is held against an answer to the hang that it names."""

import re
from pathlib import Path

import pytest
from catalogue import ALL, Hang, Program
from planted_hangs import answer_to, marked

PAGE = (Path(__file__).parents[2] / "docs" / "start" / "rl-hangs.md").read_text()
PLANTED = {f"{one.name}-{hang.name}": (one, hang) for one in ALL for hang in one.hangs}
SHOWN: dict[str, str] = dict(
    re.findall(r"^\$ ray-snapshot diagnose (\S+-\S+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
)


@pytest.mark.parametrize("name", SHOWN)
def test_an_answer_on_the_page_names_lines_at_which_its_program_hangs(name: str) -> None:
    program, hang = PLANTED[name]
    assert hang.after in PAGE
    assert any(place in SHOWN[name] for place in marked(program.path, hang.name))


def _mark(program: Program) -> pytest.MarkDecorator:
    return pytest.mark.libraries if program.needs_libraries else pytest.mark.nightly


@pytest.mark.parametrize(
    ("program", "hang"), [pytest.param(*PLANTED[name], id=name, marks=_mark(PLANTED[name][0])) for name in PLANTED]
)
def test_what_is_told_of_a_planted_hang_is_known_and_as_the_page_shows_it(program: Program, hang: Hang) -> None:
    answer = answer_to(program, hang)
    assert (answer.missing, answer.grade) == ([], hang.grade), answer.text
    shown = SHOWN.get(f"{program.name}-{hang.name}", "...")
    parts = [re.escape(" ".join(part.split())) for part in shown.split("...")]
    assert re.fullmatch(".*".join(parts), " ".join(answer.text.split()), re.DOTALL), answer.text
