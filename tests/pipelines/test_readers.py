"""What a source can read again: from any position, the rest; and an error if that is not the same data any more."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ray_snapshot as rs
from ray_snapshot.pipelines import Generated, ParquetFolder, TextFile
from ray_snapshot.pipelines.readers import Reader


def read_on(reader: Reader, position: Any = None, most: int = 3, is_final: bool = True) -> list[tuple[Any, list[Any]]]:
    """(position behind it, rows) of each batch up to the end."""
    reading, found = reader.open(position), []
    while rows := reading.read(most, is_final):
        found.append((reading.position, rows))
    return found


def flat(batches: list[tuple[Any, list[Any]]]) -> list[Any]:
    return [row for _, rows in batches for row in rows]


def numbers(count: int) -> Iterator[int]:
    yield from range(count)


class Seekable:
    """Knows how to begin anywhere."""

    def __init__(self, count: int) -> None:
        self.count, self.first = count, 0

    def seek(self, position: int) -> None:
        self.first = position

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.count))


def write_rows(path: Path, *values: int, group: int = 2) -> None:
    pq.write_table(pa.table({"n": list(values), "more": ["x"] * len(values)}), path, row_group_size=group)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return tmp_path / "text"


@pytest.fixture(params=["text", "parquet", "generated", "seekable"])
def reader(request: pytest.FixtureRequest, tmp_path: Path) -> Reader:
    if request.param == "text":
        (tmp_path / "text").write_bytes(b"".join(b"line %d\n" % number for number in range(17)) + b"\n\r\nthe last")
        return TextFile(str(tmp_path / "text"), chunk_bytes=20)
    if request.param == "parquet":
        write_rows(tmp_path / "a.parquet", *range(7))
        write_rows(tmp_path / "b.parquet")
        write_rows(tmp_path / "c.parquet", *range(7, 12))
        return ParquetFolder(str(tmp_path), columns=("n",))
    return Generated(numbers if request.param == "generated" else Seekable, (11,))


def test_from_every_position_the_rest_is_read_and_nothing_else(reader: Reader) -> None:
    whole = read_on(reader)
    assert len(whole) > 3
    for number, (position, _) in enumerate(whole):
        assert flat(read_on(reader, position)) == flat(whole[number + 1 :])
        assert flat(read_on(reader, position, most=100)) == flat(whole[number + 1 :])


def test_a_position_does_not_change_when_the_reading_goes_on(reader: Reader) -> None:
    reading = reader.open(None)
    reading.read(3, True)
    position, copy = reading.position, reader.open(None)
    copy.read(3, True)
    while reading.read(3, True):
        pass
    assert position == copy.position


# Text


def test_lines_end_at_newlines_alone_and_keep_everything_else(text: Path) -> None:
    text.write_bytes("a\r\n\x0b b\u2028c\n\n  d".encode())
    assert flat(read_on(TextFile(str(text)))) == ["a\r", "\x0b b\u2028c", "", "  d"]


@pytest.mark.contract
def test_half_a_line_waits_until_it_is_whole_or_nothing_more_comes(text: Path) -> None:
    reading = TextFile(str(text), follow=True).open(None)
    assert reading.read(10, False) == []  # the file is still to be made
    text.write_bytes(b"one\ntw")
    assert reading.read(10, False) == ["one"]
    assert reading.read(10, False) == []
    with text.open("ab") as file:
        file.write(b"o\nthr")
    assert reading.read(10, False) == ["two"]
    assert reading.read(10, True) == ["thr"]
    assert reading.read(10, True) == []


def test_a_file_written_in_pieces_of_any_size_is_read_whole(text: Path, seed: int) -> None:
    chance = random.Random(seed)
    content = "".join(chance.choice("aß\n\N{EARTH GLOBE EUROPE-AFRICA} ") for _ in range(3_000)).encode()
    reader = TextFile(str(text), follow=True, chunk_bytes=chance.randrange(1, 50))
    position, found, written = None, [], 0
    text.touch()
    while written < len(content):
        piece = content[written : written + chance.randrange(1, 200)]
        written += len(piece)
        with text.open("ab") as file:
            file.write(piece)
        reading = reader.open(position)
        while rows := reading.read(chance.randrange(1, 5), written == len(content)):
            found += rows
        position = reading.position
    assert found == content.decode().removesuffix("\n").split("\n")


@pytest.mark.contract
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"one\n", "it was truncated or rotated"),
        (b"", "it was truncated or rotated"),
        (b"one\nTWO\nthree\n", "it was replaced"),
        (b"another log, which is longer\n" * 5, "it was replaced"),
        (None, "is gone"),
    ],
)
def test_a_text_that_is_not_the_one_that_was_read_is_an_error(text: Path, content: bytes | None, message: str) -> None:
    text.write_bytes(b"one\ntwo\n")
    reading = TextFile(str(text), follow=True).open(None)
    assert reading.read(10, False) == ["one", "two"]
    if content is None:
        text.unlink()
    else:
        text.write_bytes(content)
    for again in (reading, TextFile(str(text)).open(reading.position)):
        with pytest.raises(rs.SourceChangedError, match=message) as caught:
            again.read(10, False)
        assert caught.value.path == str(text)


def test_a_file_without_lines_is_an_error_before_it_fills_the_memory(
    text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray_snapshot.pipelines.readers.LONGEST_LINE", 1_000)
    text.write_bytes(b"x" * 5_000)
    with pytest.raises(rs.SourceChangedError, match="longer than 1000 bytes"):
        read_on(TextFile(str(text), chunk_bytes=100))


# Parquet


@pytest.mark.contract
def test_files_that_are_added_are_read_wherever_their_names_sort(tmp_path: Path) -> None:
    write_rows(tmp_path / "m.parquet", 1, 2, 3)
    reading = ParquetFolder(str(tmp_path), follow=True).open(None)
    assert [row["n"] for row in reading.read(2, False)] == [1, 2]
    write_rows(tmp_path / "a.parquet", 4)
    write_rows(tmp_path / "z.parquet", 5)
    write_rows(tmp_path / "_half.parquet", 6)
    write_rows(tmp_path / ".half.parquet", 7)
    (tmp_path / "readme.txt").write_text("not this")
    rest = [row["n"] for _ in range(5) for row in reading.read(2, False)]
    assert rest == [3, 4, 5]
    write_rows(tmp_path / "b.parquet", 8)
    again = ParquetFolder(str(tmp_path)).open(reading.position)
    assert [row["n"] for row in again.read(2, True)] == [8]


def test_files_that_were_read_may_go_but_not_the_one_that_is_being_read(tmp_path: Path) -> None:
    write_rows(tmp_path / "a.parquet", 1)
    write_rows(tmp_path / "b.parquet", 2, 3)
    reader = ParquetFolder(str(tmp_path))
    reading = reader.open(None)
    reading.read(1, True)
    reading.read(1, True)
    (tmp_path / "a.parquet").unlink()
    assert [row["n"] for row in reader.open(reading.position).read(9, True)] == [3]
    write_rows(tmp_path / "b.parquet", 2, 3, 4)
    with pytest.raises(rs.SourceChangedError, match="it was replaced"):
        reader.open(reading.position).read(9, True)
    (tmp_path / "b.parquet").unlink()
    with pytest.raises(rs.SourceChangedError, match="put it back"):
        reader.open(reading.position).read(9, True)


@pytest.mark.contract
def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(rs.SourceChangedError, match="no such folder"):
        ParquetFolder(str(tmp_path / "nowhere")).open(None).read(1, True)


# Sequences


@pytest.mark.contract
def test_a_sequence_that_became_shorter_is_an_error() -> None:
    with pytest.raises(rs.SourceChangedError, match="yielded 5 items, and had yielded 7"):
        Generated(numbers, (5,)).open(7)


@pytest.mark.contract
def test_a_factory_that_makes_no_sequence_is_an_error() -> None:
    with pytest.raises(rs.SettingError, match="cannot be iterated over"):
        Generated(len, ((),)).open(None)  # type: ignore[arg-type]
