"""docs/howto/ten-questions.md: every snippet is run, as it stands, and all of one question answer the same."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F

from ray_snapshot.cli import main
from ray_snapshot.history import History

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "ten-questions.md"
SETUP, *QUESTIONS = re.split(r"\n## \d+\. ", PAGE.read_text("utf-8"))
ANOMALIES = "deadlock,leak,stuck,backlog,deaf,appear,vanish,slow,abort"


def blocks(text: str) -> list[tuple[str, str]]:
    """(whose, code) of each block: `PySpark`, `pandas`, ... as its first line says, else `SQL`."""
    found = []
    for language, code in re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL):
        said = re.match(r"(?:#|--) (\w+)\n", code)
        found.append((said[1] if said else language.upper(), code))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history with something to find for every question, in a folder."""
    found = tmp_path_factory.mktemp("questions")
    size = ["--machines", "260", "--snapshots", "24", "--seed", "3"]
    assert main(["synth", *size, "--anomalies", ANOMALIES, "--out", str(found / "history")]) == 0
    return found


@pytest.fixture(scope="module")
def ask(folder: Path, spark: Any) -> Iterator[Callable[[str, str], list[tuple[Any, ...]]]]:
    """Run a snippet; returns its rows."""
    names: dict[str, Any] = {"history": History(folder / "history"), "spark": spark, "F": F, "Window": Window}
    names |= {"pd": pd, "json": json}
    with duckdb.connect() as database:
        names["duckdb"] = database
        for _, code in blocks(SETUP):
            exec(code.replace('"history/"', repr(str(folder / "history"))), names)

        def ask(whose: str, code: str) -> list[tuple[Any, ...]]:
            if whose == "DuckDB":
                return plain(database.sql(code).to_arrow_table().to_pylist())
            if whose == "Spark":
                return plain(spark.sql(code).toArrow().to_pylist())
            own = dict(names)
            exec(code, own)
            answer = own["answer"]
            return plain((answer if whose == "pandas" else answer.toPandas()).to_dict("records"))

        yield ask


def plain(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Rows that can be compared: whatever each tool has for null, times and numbers."""

    def value(one: Any) -> Any:
        if one is None or one is pd.NaT or (isinstance(one, float) and math.isnan(one)):
            return None
        if isinstance(one, datetime):
            return round(one.timestamp(), 3)
        return one if isinstance(one, str | bool) else round(float(one), 6)

    return [tuple(value(one) for one in row.values()) for row in rows]


@pytest.mark.by_day(5)
@pytest.mark.parametrize("question", QUESTIONS, ids=[text.splitlines()[0] for text in QUESTIONS])
def test_all_tools_give_one_answer(question: str, ask: Callable[[str, str], list[tuple[Any, ...]]]) -> None:
    given = blocks(question)
    asked = [(who, code) for whose, code in given for who in (("Spark", "DuckDB") if whose == "SQL" else (whose,))]
    answers = {who: ask(who, code) for who, code in asked}

    assert set(answers) == {"Spark", "DuckDB", "PySpark", "pandas"}
    assert answers["Spark"], "nothing to find: the answers say nothing"
    assert all(answer == answers["Spark"] for answer in answers.values()), answers


def test_there_are_ten() -> None:
    assert len(QUESTIONS) == 10
