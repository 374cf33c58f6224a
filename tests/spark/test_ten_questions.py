"""docs/howto/ten-questions.md: every snippet is run, as it stands, and all of one question answer what plain Python does.

Of a history of three runs and two systems. So is every query that stands on another page.
"""

import json
import math
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from three_runs import Plain, Row, by, run_of

from ray_snapshot import questions
from ray_snapshot.history import History

pytestmark = pytest.mark.spark

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "howto" / "ten-questions.md"
SETUP, *QUESTIONS = re.split(r"\n## \d+\. ", PAGE.read_text("utf-8"))


def blocks(text: str) -> list[tuple[str, str]]:
    """(whose, code) of each block: `PySpark`, `pandas`, ... as its first line says, else `SQL`."""
    found = []
    for language, code in re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL):
        said = re.match(r"(?:#|--) (\w+)\n", code)
        found.append((said[1] if said else language.upper(), code))
    return found


@pytest.fixture(scope="module")
def ask(three_runs: History, spark: Any) -> Callable[[str, str], list[tuple[Any, ...]]]:
    """Run a snippet below the setup of its kind, which `spark` has begun the session for; returns its rows."""
    names: dict[str, dict[str, Any]] = {}
    for whose, code in blocks(SETUP):
        exec(code.replace('"history/"', repr(str(three_runs.path))), names.setdefault(whose, {}))

    def ask(whose: str, code: str) -> list[tuple[Any, ...]]:
        if whose == "DuckDB":
            return plain(names["DuckDB"]["duckdb"].sql(code).to_arrow_table().to_pylist())
        if whose == "Spark":
            return plain(spark.sql(code).toArrow().to_pylist())
        own = dict(names["pandas" if whose == "pandas" else "Spark"])
        exec(code, own)
        answer = own["answer"]
        return plain((answer if whose == "pandas" else answer.toPandas()).to_dict("records"))

    return ask


def plain(rows: list[Row]) -> list[tuple[Any, ...]]:
    """The values of rows, comparable."""
    return [comparable(tuple(row.values())) for row in rows]


def comparable(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Whatever each tool has for null, times and numbers."""

    def value(one: Any) -> Any:
        if one is None or one is pd.NaT or (isinstance(one, float) and math.isnan(one)):
            return None
        if isinstance(one, datetime):
            return round(one.timestamp(), 3)
        return round(float(one), 6) if isinstance(one, int | float) and not isinstance(one, bool) else one

    return tuple(map(value, row))


# ---- answers -----------------------------------------------------------------------------------------------------------


def answer_1(plain: Plain) -> Iterator[tuple[Any, ...]]:
    for row in sorted(plain.tables["snapshots"], key=lambda row: row["snapshot_id"]):
        if row["status"] == "aborted":
            yield *run_of(row), row["snapshot_id"], row["abort_machine"], row["abort_reason"]


def answer_2(plain: Plain) -> Iterator[tuple[Any, ...]]:
    alarms = [row for row in plain.tables["verdicts"] if row["alarm"] and row["evaluator"] == "live"]
    for key, rows in by(alarms, lambda row: (*run_of(row), row["detector"])).items():
        yield *key, rows[0]["snapshot_id"], len(rows)


def answer_3(plain: Plain) -> Iterator[tuple[Any, ...]]:
    columns = ("machine", "alternative", "k", "on_machine", "waiting_since")
    for snapshots in by(plain.complete, lambda row: row["system"]).values():
        last = snapshots[-1]["snapshot_id"]
        blocked = {row["machine"] for row in plain.rows["machines"][last] if row["status"] == "blocked"}
        waits = [row for row in plain.rows["waits"].get(last, []) if row["machine"] in blocked and not row["satisfied"]]
        for row in sorted(waits, key=lambda row: (row["machine"], row["alternative"], row["on_machine"])):
            yield *run_of(row), *(row[name] for name in columns)


def answer_4(plain: Plain) -> Iterator[tuple[Any, ...]]:
    for run, ids in plain.ids.items():
        for one in ids:
            state = plain.at("machines", one, "machine")["worker-062"]["state"]
            yield *run, one, json.loads(state)["balance"]


def answer_5(plain: Plain) -> list[tuple[Any, ...]]:
    of_channel = by(plain.tables["channels"], lambda row: (*run_of(row), row["source"], row["target"], row["kind"]))
    counts = {key: [row["in_flight_count"] for row in rows] for key, rows in of_channel.items()}
    found = [(*key, max(own), own[-1]) for key, own in counts.items() if max(own) > 2]
    return sorted(found, key=lambda row: (-row[5], row))


def answer_6(plain: Plain) -> list[tuple[Any, ...]]:
    mail = [row for row in plain.tables["messages"] if row["kind"] == "mail"]
    channels = by(mail, lambda row: (*run_of(row), row["snapshot_id"], row["source"], row["target"]))
    heads = [min(rows, key=lambda row: row["number"]) for rows in channels.values()]
    seen = by(heads, lambda row: (*run_of(row), row["source"], row["target"], row["number"]))
    found = [(*key, len(rows), rows[0]["snapshot_id"]) for key, rows in seen.items()]
    return sorted(found, key=lambda row: (-row[5], row))[:3]


def answer_7(plain: Plain) -> Iterator[tuple[Any, ...]]:
    for run, rows in by(plain.complete, run_of).items():
        ids = [row["snapshot_id"] for row in rows if row["sequence"] >= 10]
        before, now = (plain.at("machines", one, "machine") for one in (ids[0], ids[-1]))
        waiting: dict[str, int] = {}
        for channel in plain.rows["channels"][ids[-1]]:
            waiting[channel["target"]] = waiting.get(channel["target"], 0) + channel["in_flight_count"]
        for name, row in sorted(now.items()):
            if waiting.get(name) and row["accepted_count"] == before.get(name, {"accepted_count": 0})["accepted_count"]:
                yield *run, name, waiting[name]


def answer_8(plain: Plain) -> Iterator[tuple[Any, ...]]:
    for run in plain.ids:
        for one, sent in plain.since_before(run, "sent_count").items():
            yield *run, one, sent


def answer_9(plain: Plain) -> list[tuple[Any, ...]]:
    late = [row for row in plain.tables["machines"] if row["record_delay_ms"] > 20]
    found = [
        (*key, max(row["record_delay_ms"] for row in rows), len({row["snapshot_id"] for row in rows}))
        for key, rows in by(late, lambda row: (*run_of(row), row["host"])).items()
    ]
    return sorted(found, key=lambda row: (-row[3], row))


def answer_10(plain: Plain) -> Iterator[tuple[Any, ...]]:
    for run, ids in plain.ids.items():
        before, now = (plain.at("machines", one, "machine") for one in (ids[0], ids[-1]))
        for name in sorted({*before} ^ {*now}):
            yield *run, name, "new" if name in now else "gone"


ANSWERS = (answer_1, answer_2, answer_3, answer_4, answer_5, answer_6, answer_7, answer_8, answer_9, answer_10)


@pytest.mark.by_day(2)
@pytest.mark.parametrize("number", range(10), ids=[text.splitlines()[0] for text in QUESTIONS])
def test_all_tools_answer_what_plain_python_does(
    number: int, ask: Callable[[str, str], list[tuple[Any, ...]]], rows_of_three_runs: Plain
) -> None:
    given = blocks(QUESTIONS[number])
    asked = [(who, code) for whose, code in given for who in (("Spark", "DuckDB") if whose == "SQL" else (whose,))]
    answers = {who: ask(who, code) for who, code in asked}
    expected = [*map(comparable, ANSWERS[number](rows_of_three_runs))]

    assert {*answers} == {"Spark", "DuckDB", "PySpark", "pandas"}
    assert expected, "nothing to find: the answers say nothing"
    for who, answer in answers.items():
        assert answer == expected, who


def test_there_are_ten() -> None:
    assert len(QUESTIONS) == len(ANSWERS) == 10


def by_status_at_last(plain: Plain) -> list[tuple[Any, ...]]:
    last = max(row["snapshot_id"] for row in plain.complete)
    statuses = [row["status"] for row in plain.rows["machines"][last]]
    return sorted((status, statuses.count(status)) for status in {*statuses})


def everything(plain: Plain) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in plain.tables["snapshots"]]


QUERIES: dict[str, Callable[[Plain], list[tuple[Any, ...]]]] = {
    "SELECT status, count(*) AS machines FROM machines WHERE snapshot_id = (SELECT max(snapshot_id) FROM snapshots"
    " WHERE status = 'complete') GROUP BY status ORDER BY status": by_status_at_last,
    "SELECT * FROM snapshots": everything,
}
"""What other pages ask, but for a query that shows an error."""


def test_each_query_of_the_other_pages_answers_what_plain_python_does(
    three_runs: History, rows_of_three_runs: Plain
) -> None:
    texts = [page.read_text("utf-8") for page in DOCS.rglob("*.md") if page.name != "decisions.md"]
    written = {query for text in texts for query in re.findall(r"\bsql\b[^\n\"]*\"(SELECT [^\"]*)\"", text)}
    assert written - {"SELECT machine, stat FROM machines"} == {*QUERIES}
    for query, answer in QUERIES.items():
        found = questions.sql(three_runs, query).rows.to_pylist()
        assert sorted(map(repr, plain(found))) == sorted(repr(comparable(row)) for row in answer(rows_of_three_runs))
