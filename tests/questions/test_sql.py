"""`questions.sql`: what a query sees, and that it can neither reach out of the history, nor take more than it may."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from asked_histories import bank, snapshot, write
from clean import clean_environment, ran
from deltalake import DeltaTable

from ray_snapshot.cli import main
from ray_snapshot.errors import (
    HistoryFormatError,
    HistoryNotFoundError,
    QueryError,
    RaySnapshotError,
    SettingError,
    SnapshotTimeoutError,
)
from ray_snapshot.history import History, tables
from ray_snapshot.questions import asking, sql
from ray_snapshot.schema import TABLES

Ask = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    return bank(tmp_path_factory.mktemp("asked") / "h")


@pytest.fixture
def ask(history: History, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Answer a query in this process, which must not bound itself: that takes no time for a process of its own."""
    monkeypatch.setattr(asking, "_bound", lambda _: None)

    def answer(query: str, of: History = history, limit: int = 1_000) -> list[dict[str, Any]]:
        request = {"history": str(of.path), "query": query, "limit": limit, "seconds": 60}
        rows: list[dict[str, Any]] = asking.answered(request).to_pylist()
        return rows

    return answer


# ---- what it sees ------------------------------------------------------------------------------------------------------


def test_each_table_of_a_history_is_a_table_with_the_partitions_as_columns(ask: Ask) -> None:
    assert {row["name"] for row in ask("SHOW TABLES")} == {*TABLES}
    for name in TABLES:
        described = [row["column_name"] for row in ask(f"DESCRIBE {name}")]
        assert described == tables.stored_schema(name).names
    assert ask("SELECT DISTINCT system, CAST(date AS varchar) AS day FROM machines WHERE system = 'ring'") == [
        {"system": "ring", "day": "2026-03-01"}
    ]


def test_a_query_may_join_and_look_into_json(ask: Ask) -> None:
    rows = ask(
        "SELECT s.sequence, sum(CAST(json_extract_string(m.state, '$.balance') AS bigint)) AS held"
        " FROM machines m JOIN snapshots s USING (snapshot_id) WHERE s.system = 'bank' AND s.status = 'complete'"
        " GROUP BY ALL ORDER BY 1"
    )
    assert rows == [
        {"sequence": n, "held": held} for n, held in zip((0, 1, 2, 4, 5), (30, 23, 30, 25, 25), strict=True)
    ]
    assert type(rows[0]["held"]) is int, "a sum of whole numbers is one"


def test_rows_that_snapshots_does_not_list_do_not_exist(ask: Ask, tmp_path: Path) -> None:
    history = write(tmp_path / "h", [snapshot("bank-1", n, [1, 2, 3]) for n in range(2)])
    DeltaTable(str(history.path / "snapshots")).delete("snapshot_id = 'bank-1-0000'")
    DeltaTable(str(history.path / "snapshots")).to_pyarrow_table()
    for table in ("snapshots", "machines", '"machines"', "MACHINES"):
        assert ask(f"SELECT DISTINCT snapshot_id FROM {table}", of=history) == [{"snapshot_id": "bank-1-0001"}]
    assert ask("SELECT count(*) AS n FROM machines", of=history) == [{"n": 3}]


def test_a_file_that_another_writer_has_made_with_other_texts_is_read_too(ask: Ask, tmp_path: Path) -> None:
    history = write(tmp_path / "h", [snapshot("bank-1", n, [1, 2, 3]) for n in range(2)])
    DeltaTable(str(history.path / "snapshots")).delete("snapshot_id = 'bank-1-0000'")
    for file in history.files("machines"):
        rows = pq.read_table(file, partitioning=None)
        kinds = [pa.string_view() if pa.types.is_string(field.type) else field.type for field in rows.schema]
        pq.write_table(rows.cast(pa.schema(zip(rows.column_names, kinds, strict=True))), file)
    query = "SELECT snapshot_id, count(*) AS n FROM machines GROUP BY 1"
    assert ask(query, of=history) == [{"snapshot_id": "bank-1-0001", "n": 3}]


def test_times_are_utc_names_are_distinct_and_decimals_are_numbers(ask: Ask) -> None:
    (row,) = ask("SELECT min(started_at)::varchar AS at, 1.5 AS at, 2 AS at, sum(sequence) AS n FROM snapshots")
    assert row == {"at": "2026-03-01 23:59:58+00", "at_2": 1.5, "at_3": 2, "n": 16}


ROOT = Path(__file__).parents[2]
QUESTIONS = re.findall(
    r"```sql\n(?:-- DuckDB\n)?((?!-- Spark).*?)```",
    (ROOT / "docs" / "howto" / "ten-questions.md").read_text("utf-8"),
    re.DOTALL,
)


def test_the_ten_questions_of_the_page_are_answered_as_by_duckdb_alone(ask: Ask, tmp_path: Path) -> None:
    size = ["--machines", "130", "--snapshots", "24", "--anomalies", "deadlock,leak,appear,vanish,abort,slow,stuck"]
    assert main(["synth", *size, "--out", str(tmp_path / "h")]) == 0
    history = History(tmp_path / "h")
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        for table in TABLES:
            database.register(table, history.table(table))
        for query in QUESTIONS:
            expected = asking._rows(database.sql(query).to_arrow_reader(1_000), 1_000).to_pylist()
            assert sorted(map(repr, ask(query, of=history))) == sorted(map(repr, expected)), query
    assert len(QUESTIONS) == 10


# ---- what it may not ---------------------------------------------------------------------------------------------------

OUTSIDE = {
    "SELECT * FROM '{file}'": "reaches out of the history",
    "SELECT * FROM read_csv('{file}')": "reaches out of the history",
    "SELECT * FROM read_text('{file}')": "reaches out of the history",
    "SELECT * FROM read_parquet('{parquet}')": "reaches out of the history",
    "SELECT * FROM parquet_metadata('{parquet}')": "reaches out of the history",
    "SELECT * FROM glob('{folder}/*')": "reaches out of the history",
    "SELECT * FROM query('SELECT * FROM read_text(''{file}'')')": "reaches out of the history",
    "COPY snapshots TO '{new}'": "COPY is refused",
    "COPY (SELECT 1) TO '{new}' (FORMAT parquet)": "COPY is refused",
    "EXPORT DATABASE '{new}'": "EXPORT is refused",
    "ATTACH '{new}'": "ATTACH is refused",
    "CREATE TABLE t AS SELECT 1": "CREATE is refused",
    "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '{file}'": "line 1, column 17, at TABLE: syntax error",
    "INSERT INTO snapshots VALUES (1)": "INSERT is refused",
    "DROP TABLE snapshots": "DROP is refused",
    "SET memory_limit = '100GB'": "SET is refused",
    "PRAGMA database_list": "PRAGMA is refused",
    "INSTALL httpfs": "LOAD is refused",
    "LOAD '{file}'": "LOAD is refused",
    "CALL pragma_version()": "CALL is refused",
    "EXPLAIN ANALYZE COPY snapshots TO '{new}'": "EXPLAIN is refused",
    "PREPARE p AS SELECT 1": "PREPARE is refused",
    "SELECT 1; COPY snapshots TO '{new}'": "one query at a time",
    "": "one query at a time",
    "SELECT * FROM request": "there is no table request",
}


@pytest.mark.parametrize("query", OUTSIDE)
def test_a_query_reaches_nothing_but_the_history(query: str, ask: Ask, tmp_path: Path, history: History) -> None:
    """`request` is a variable of the very function that asks DuckDB, which would look for such."""
    (tmp_path / "secret.csv").write_text("secret\n1\n")
    pq.write_table(pa.table({"secret": [1]}), tmp_path / "secret.parquet")
    before = sorted(tmp_path.iterdir())
    names = {"file": "secret.csv", "parquet": "secret.parquet", "new": "new", "folder": ""}
    given = query.format(**{name: tmp_path / file for name, file in names.items()})
    with pytest.raises(QueryError, match=OUTSIDE[query]) as told:
        ask(given)
    assert "\n" not in str(told.value)
    assert sorted(tmp_path.iterdir()) == before


def test_the_files_of_the_history_itself_are_no_way_in_either(ask: Ask, history: History) -> None:
    (file, *_) = history.files("snapshots")
    with pytest.raises(QueryError, match="reaches out of the history"):
        ask(f"SELECT * FROM read_parquet('{file}')")


PLACES = {
    "selekt 1": r"line 1, column 1, at selekt: syntax error",
    "SELECT\n  snapshot_id,\n  nix\nFROM snapshots": r"line 3, column 3, at nix: Referenced column \"nix\" not found",
    "SELECT * FROM machine": r"line 1, column 15, at machine: there is no table machine; a history has snapshots, machines",
    "SELECT 'open": r"line 1, column 8, at ': unterminated",
    "SELECT nosuch(1)": r"nosuch does not exist",
    "SELECT 1 FROM machines WHERE machine = 1": r"at machine: Could not convert string",
    "SELECT " + "1," * 60 + " nix FROM snapshots": r"line 1, at nix: Referenced column",
}


@pytest.mark.parametrize("query", PLACES)
def test_what_is_wrong_is_told_in_a_line_that_names_the_place(query: str, ask: Ask) -> None:
    with pytest.raises(QueryError, match=PLACES[query]) as told:
        ask(query)
    assert "\n" not in str(told.value)


def test_a_table_whose_name_is_put_together_is_told_to_be_written_out(ask: Ask) -> None:
    with pytest.raises(QueryError, match="the table machines is read, but the query does not name it"):
        ask("SELECT * FROM query('SELECT * FROM mach' || 'ines')")


def test_a_link_in_the_place_of_a_file_is_refused_by_name(ask: Ask, tmp_path: Path) -> None:
    history = write(tmp_path / "h", [snapshot("bank-1", 0, [1])])
    (file,) = history.files("machines")
    shutil.move(file, tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", file)
    with pytest.raises(HistoryFormatError, match="is a link"):
        ask("SELECT * FROM machines", of=history)
    assert ask("SELECT count(*) AS n FROM snapshots", of=history) == [{"n": 1}]


def test_a_file_that_is_damaged_inside_is_told_with_its_table(ask: Ask, tmp_path: Path) -> None:
    """In the pages of the states, which nobody looks at before they are asked for."""
    history = write(tmp_path / "h", [snapshot("bank-1", n, [1] * 50) for n in range(50)])
    for file in map(Path, history.files("machines")):
        about = pq.ParquetFile(file).metadata
        chunk = about.row_group(0).column(about.schema.names.index("state"))
        begin, whole = chunk.data_page_offset, file.read_bytes()
        file.write_bytes(whole[:begin] + bytes(50) + whole[begin + 50 :])
    with pytest.raises(
        HistoryFormatError, match=r"table machines cannot be read: .*; see `ray-snapshot history verify`"
    ):
        ask("SELECT state FROM machines", of=history)
    assert ask("SELECT count(machine) AS n FROM machines", of=history) == [{"n": 2_500}]


def test_duckdb_is_set_so_that_a_query_can_change_nothing(ask: Ask) -> None:
    off = ("enable_external_access", "python_enable_replacements", "autoload_known_extensions", "enable_progress_bar")
    columns = ", ".join(f"current_setting('{name}') AS {name}" for name in off)
    (row,) = ask(f"SELECT {columns}, current_setting('lock_configuration') AS locked FROM snapshots LIMIT 1")
    assert row == {**dict.fromkeys(off, False), "locked": True}


# ---- in a process of its own -------------------------------------------------------------------------------------------


def test_no_more_rows_come_than_were_asked_for(history: History, ask: Ask) -> None:
    rows, is_cut = sql(history, "SELECT sequence FROM snapshots WHERE system = 'bank' ORDER BY 1 DESC", limit=2)
    assert (rows.to_pylist(), is_cut) == ([{"sequence": 5}, {"sequence": 4}], True)
    assert len(ask("SELECT * FROM snapshots", limit=8)) == 8
    assert len(ask("SELECT * FROM range(100000000000)", limit=3)) == 3, "the others were not waited for"
    with pytest.raises(SettingError, match="limit=0"):
        sql(history, "SELECT 1", limit=0)


def test_a_query_that_does_not_end_is_ended(history: History) -> None:
    began = time.monotonic()
    with pytest.raises(SnapshotTimeoutError, match=r"not answered within 4 s"):
        sql(
            history,
            "WITH RECURSIVE t AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM t) SELECT * FROM t WHERE a < 0",
            timeout=4,
        )
    assert time.monotonic() - began < 14


@pytest.mark.parametrize(
    "query",
    [
        "SELECT repeat('x', 4000000000)",
        "SELECT string_agg(m.state, '') FROM range(300000000) r, machines m",
        "SELECT repeat('x', 1000000) FROM range(300)",
    ],
)
def test_a_query_that_takes_too_much_memory_is_ended(query: str, history: History) -> None:
    with pytest.raises(QueryError, match=r"memory|more than 256 MB"):
        sql(history, query)


def test_what_the_process_cannot_do_is_told_as_what_it_is(history: History, tmp_path: Path) -> None:
    with pytest.raises(HistoryNotFoundError, match="there is no such folder"):
        sql(tmp_path / "nowhere", "SELECT 1")
    with pytest.raises(QueryError, match="COPY is refused") as told:
        sql(history, f"COPY snapshots TO '{tmp_path}/new'")
    assert told.value.query.startswith("COPY")
    with pytest.raises(QueryError, match="is no text"):
        sql(history, "SELECT '\udcff'")


@pytest.mark.contract
def test_the_process_can_write_no_file_and_has_bounds(tmp_path: Path) -> None:
    """Behind all that is refused: if DuckDB let a query write after all, the process could not."""
    code = (
        "import resource\nfrom ray_snapshot.questions import asking\nasking._bound(60)\n"
        "print([resource.getrlimit(one)[0] for one in (resource.RLIMIT_CPU, resource.RLIMIT_FSIZE)])\n"
        "print(resource.getrlimit(resource.RLIMIT_DATA)[0] < 8e9)\n"
        f"import pathlib\ntry:\n    pathlib.Path({str(tmp_path / 'new')!r}).write_text('x')\n"
        "except OSError as error:\n    print(error.strerror)"
    )
    done = ran(sys.executable, "-c", code)
    assert done.stdout.splitlines() == ["[70, 0]", "True", "File too large"], done.stderr


@pytest.mark.contract
def test_what_a_library_prints_is_no_part_of_an_answer() -> None:
    """DuckDB draws a bar on standard output while a query takes longer than two seconds, unless it is told not to."""
    code = (
        "import os, sys\nimport pyarrow as pa\nfrom ray_snapshot.questions import asking\n"
        "asking.answered = lambda _: [os.write(1, b'99%'), pa.table({'a': [1]})][1]\nsys.exit(asking.main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=clean_environment(), input=b"{}", capture_output=True, timeout=120, check=True
    )
    assert pa.ipc.open_stream(done.stdout).read_all().to_pylist() == [{"a": 1}]


@pytest.mark.contract
def test_every_error_of_the_process_is_one_of_ours() -> None:
    assert issubclass(QueryError, RaySnapshotError)
    assert issubclass(QueryError, ValueError)
