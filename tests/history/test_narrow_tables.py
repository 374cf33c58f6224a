"""Tables on a terminal: an id is never wrapped or cut; other columns give way."""

import io
from typing import Any

import pytest
from rich.console import Console

from ray_snapshot.views import tables
from ray_snapshot.views.tables import Column

ID = "20261121T175908549420Z-cd400b-000001"
SENTENCE = "philosopher-0 waits for fork-1, fork-1 waits for philosopher-1, and so on round a cycle of 10"


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> Any:
    def show(width: int, rows: list[dict[str, Any]], columns: list[Column], **more: Any) -> list[str]:
        screen = io.StringIO()
        monkeypatch.setattr(tables, "is_terminal", lambda: True)
        monkeypatch.setattr(tables, "console", lambda: Console(file=screen, width=width, markup=False, highlight=False))
        tables.print_table(rows, columns, **more)
        return screen.getvalue().splitlines()

    return show


COLUMNS = [
    Column("snapshot", "snapshot"),
    Column("run", "run", minor=2),
    Column("most in flight", "count", right=True, minor=1),
    Column("detector", "detector"),
    Column("sentence", "sentence", wraps=True),
]
ROW = {"snapshot": ID, "run": "0123456789abcdef", "count": 7, "detector": "deadlock", "sentence": SENTENCE}


@pytest.mark.parametrize("width", [200, 120, 100, 81, 80, 79])
def test_no_line_is_wider_than_the_terminal_and_every_id_that_is_shown_is_whole(printed: Any, width: int) -> None:
    lines = printed(width, [ROW], COLUMNS)
    assert max(map(len, lines)) <= width
    assert any(ID in line and "deadlock" in line for line in lines)
    assert SENTENCE.rsplit(maxsplit=1)[-1] in "\n".join(lines)


def test_minor_columns_are_left_out_one_after_the_other_and_named(printed: Any) -> None:
    assert "no room" not in "\n".join(printed(120, [ROW], COLUMNS))
    assert printed(90, [ROW], COLUMNS)[-1] == "(no room for: run; widen the terminal, or use --json)"
    assert printed(79, [ROW], COLUMNS)[-1].startswith("(no room for: run, most in flight; widen")


def test_where_the_row_has_no_room_its_text_comes_below_it(printed: Any) -> None:
    lines = printed(60, [ROW], COLUMNS, title="Verdicts")
    assert lines[0] == "Verdicts"
    assert lines[1] == f"{'snapshot'.ljust(len(ID))}  detector"
    assert lines[3] == f"{ID}  deadlock"
    assert " ".join(line.strip() for line in lines[4:6]) == f"sentence: {SENTENCE}"
    assert lines[-2].startswith("(no room for: run, most in flight; widen")


def test_where_even_the_ids_have_no_room_a_row_is_a_block_of_lines(printed: Any) -> None:
    lines = printed(45, [ROW], COLUMNS, title="Verdicts")
    assert lines[0] == "Verdicts"
    assert f"snapshot        {ID}" in lines, "longer than its place: the terminal breaks it, nothing is cut"
    text = [line for line in lines if line.startswith(("sentence  ", " " * 16))]
    assert " ".join(line.strip() for line in text) == f"sentence        {SENTENCE}"
    assert max(map(len, text)) <= 45


def test_a_long_word_of_a_text_has_room_in_its_column(printed: Any) -> None:
    word = "fork-administration-department-1"
    row = {**ROW, "sentence": f"waits for {word} and for philosopher-counselling-service-0"}
    lines = printed(90, [row], COLUMNS)
    assert any(word in line for line in lines)
    assert any("philosopher-counselling-service-0" in line for line in lines)
