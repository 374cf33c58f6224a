"""A query in SQL to the tables of a history, answered by DuckDB in a process of its own that can read nothing else.

That process gets the query and the folder of the history, and gives back rows: see `asking`. It is ended when its time is
over, has a bounded amount of memory, and can write no file. What it says is checked here, and never executed. Arrow is
imported while it works.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ray_snapshot import errors
from ray_snapshot.errors import HistoryFormatError, QueryError, RaySnapshotError, SettingError, SnapshotTimeoutError

if TYPE_CHECKING:
    import pyarrow as pa

    from ray_snapshot.history import History

TIMEOUT_S = 60.0
MOST_ROWS = 1_000_000
"""No answer has more rows."""

REFUSED = 3
"""The exit code of the process that says why it cannot answer."""

IS_CUT = b"is_cut"
"""The key in the metadata of an answer that has fewer rows than the query."""

_CALL = """
import sys
sys.path.append(sys.argv.pop(1))
from ray_snapshot.questions.asking import main
sys.exit(main())
"""
"""Also where the package is not installed."""

_MEMORY = ("MemoryError", "bad_alloc", "malloc")


class Answer(NamedTuple):
    """The rows of a query, and whether it has more."""

    rows: pa.Table
    is_cut: bool


def sql(history: History | str | Path, query: str, *, limit: int = MOST_ROWS, timeout: float = TIMEOUT_S) -> Answer:
    """The answer to one query (SELECT, WITH, FROM, VALUES, DESCRIBE, SHOW TABLES) in DuckDB's SQL; at most `limit` rows of it.

    `history`: it, or its folder. Each of its tables is one of that name, with the rows whose snapshot `snapshots` lists. Raises
    `QueryError` for a query that is malformed, asks for anything else, or is too large to be answered; `SnapshotTimeoutError`
    after `timeout` seconds; `HistoryNotFoundError`, `HistoryFormatError`.
    """
    if not 0 < limit <= MOST_ROWS:
        raise SettingError(f"limit={limit}: a number of rows from 1 to {MOST_ROWS}")
    try:
        query.encode()
    except UnicodeEncodeError as error:
        raise QueryError(f"the query is no text: {error}", query=query) from None
    folder = str(getattr(history, "path", history))
    request = {"history": folder, "query": query, "limit": limit, "seconds": timeout}
    root = str(Path(__file__).parents[2])
    with subprocess.Popen(
        [sys.executable, "-P", "-c", _CALL, root],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            said, complaint = process.communicate(json.dumps(request).encode(), timeout=timeout)
        except subprocess.TimeoutExpired:
            raise SnapshotTimeoutError(
                f"the query was not answered within {timeout:g} s: ask for less, or give it more time with --timeout",
                waited_for="the query",
                seconds=timeout,
            ) from None
        finally:
            process.kill()
    if process.returncode == 0:
        return _answer(folder, said)
    raise _failed(process.returncode, said, complaint.decode(errors="replace"), query)


def _answer(folder: str, said: bytes) -> Answer:
    import pyarrow as pa

    with pa.ipc.open_stream(said) as stream:
        rows = stream.read_all()
    try:
        rows.validate(full=True)
    except pa.ArrowInvalid as fault:
        raise HistoryFormatError(
            f"history {folder} has texts that are none ({str(fault)[:200]}): see `ray-snapshot history verify`",
            path=folder,
        ) from fault
    return Answer(rows.replace_schema_metadata(None), (rows.schema.metadata or {}).get(IS_CUT) == b"1")


def _failed(code: int, said: bytes, complaint: str, query: str) -> Exception:
    if code == REFUSED:
        told: dict[str, Any] = json.loads(said)
        kind = getattr(errors, told["error"], RaySnapshotError)
        return kind(told["text"], **({"query": query} if kind is QueryError else {}))
    if code == -signal.SIGXCPU:
        return SnapshotTimeoutError("the query took more processor time than it may", waited_for="the query")
    if code < 0 or any(word in complaint for word in _MEMORY):
        how = f"its process was ended by signal {-code}" if code < 0 else "there was no more to be had"
        return QueryError(f"the query needs more memory than it may take ({how}): ask for less", query=query)
    return RuntimeError(f"the process of a query ended with {code}: {complaint[-2_000:]}")
