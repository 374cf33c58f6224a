"""What a history holds can be printed, drawn and rewritten, or is refused by one line, and `verify` says so, too."""

from datetime import datetime
from pathlib import Path
from typing import Any

import crafted
import pytest

from ray_snapshot import cli, json_text
from ray_snapshot.errors import HistoryFormatError
from ray_snapshot.history import History

NESTED = "[" * 900 + "]" * 900
"""Python parses it, and cannot print it."""

READING = (["show"], ["show", "--json"], ["list", "--json"], ["verdicts", "--json"], ["compact"])


def said_by_all(history: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What commands that read all of it, and verify, say; each ends with an exit code of the user's."""
    found = []
    for command, *options in [*READING, ["verify"]]:
        code = cli.main([command, str(history), *options])
        said = capsys.readouterr()
        assert code in (0, 1, 2), (command, said.err)
        found.append(said.err + said.out)
    return found


@pytest.mark.parametrize(
    ("table", "column"),
    [("machines", "state"), ("messages", "args"), ("snapshots", "coverage"), ("verdicts", "evidence")],
)
def test_what_is_nested_too_deeply_to_be_printed_is_refused(
    history: Path, table: str, column: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = NESTED if column == "args" else f'{{"a":{NESTED}}}'
    for file in (history / table).glob("system=*/date=*/*.parquet"):
        crafted.with_texts(file, column, text)
    said = said_by_all(history, capsys)
    assert any("nested more than" in one for one in said[:-1])
    assert "nested more than" in said[-1]
    if table == "verdicts":
        return
    with pytest.raises(HistoryFormatError, match="nested more than"):
        _ = [(taken.messages, taken.machines["a"]) for taken in History(history).load_many(["bank-00000"])]


def test_a_text_of_more_lists_than_any_writer_stores_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_text, "MOST_IN_JSON", 1_000)
    assert len(json_text.parsed_json("[" + "{}," * 900 + "1]")) == 901
    with pytest.raises(ValueError, match="too many lists"):
        json_text.parsed_json("[" + "{}," * 1_000 + "1]")


def test_a_text_as_deep_as_a_writer_stores_is_read() -> None:
    depth = json_text.DEEPEST_JSON - 1
    assert json_text.parsed_json("[" * depth + "]" * depth)


@pytest.mark.parametrize("date", [None, "+262000-12-31", "-0001-01-01"])
@pytest.mark.parametrize("is_everywhere", [True, False])
def test_a_partition_of_no_date_is_refused(
    history: Path, date: str | None, is_everywhere: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = []

    def change(action: dict[str, Any]) -> None:
        if "add" in action and (is_everywhere or not changed):
            action["add"]["partitionValues"]["date"] = date
            changed.append(action)

    crafted.edit_log(history, "machines", change)  # type: ignore[arg-type]
    said = said_by_all(history, capsys)
    assert "without a date" in said[READING.index(["compact"])]
    assert "all passed" not in said[-1]


def test_a_partition_that_is_no_date_by_its_schema_is_refused(
    history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def change(action: dict[str, Any]) -> None:
        for about in action.values():
            if "schemaString" in about:
                about["schemaString"] = about["schemaString"].replace('"type":"date"', '"type":"string"')

    crafted.edit_log(history, "machines", change)  # type: ignore[arg-type]
    said = said_by_all(history, capsys)
    assert "none of a ray-snapshot history" in said[READING.index(["compact"])]
    assert "all passed" not in said[-1]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["a$\\foo$ b", "$$", "W" * 1_000_000, "a\nb\x1b[31m"], ids=range(4))
def test_a_picture_is_drawn_of_any_name(tmp_path: Path, name: str) -> None:
    from ray_snapshot.views import charts
    from ray_snapshot.views.charts import HELD, Points, Quantity, Span

    times = [datetime(2026, 1, 1, hour) for hour in (1, 2)]
    series = {name: Points(times, [1.0, 2.0])}
    charts.line_chart([(Quantity("held"), series)], name, [(times[0], name)]).savefig(tmp_path / "lines.png")
    charts.band_chart({name: [Span(*times, HELD)]}, name).savefig(tmp_path / "bands.png")
    assert len(list(tmp_path.glob("*.png"))) == 2
