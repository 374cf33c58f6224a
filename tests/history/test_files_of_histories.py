"""Folders and stores answer alike (`places.Files`); a checkpoint is loaded as it was written, or not at all."""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ray_snapshot.addresses import AnyPath, StorePath
from ray_snapshot.errors import CheckpointError, HistoryFormatError, NotRestorableError
from ray_snapshot.history import checkpoints, objects, places
from ray_snapshot.history.checkpoints import Checkpoint
from ray_snapshot.history.stores import StoreFault
from ray_snapshot.limits import LIMITS


@pytest.fixture(params=["folder", "store"])
def top(request: pytest.FixtureRequest, tmp_path: Path) -> AnyPath:
    if request.param == "folder":
        return tmp_path
    root: str = request.getfixturevalue("bucket")
    return StorePath(root, "some/history")


def write(top: AnyPath, name: str, content: bytes) -> Any:
    path = top / "table" / name
    begun: Any = places.at(top).Begun(top, path)
    begun.sink.write(content)
    return begun


def test_a_file_is_there_when_it_is_finished_and_not_before(top: AnyPath) -> None:
    files = places.at(top)
    files.check_writable(top)
    path, content = top / "table" / "a.parquet", os.urandom(100_000)
    begun = write(top, "a.parquet", content)
    assert not files.exists(top, path)
    size, written_at = begun.finish(top / "table")
    assert (size, abs(written_at - files.now(top)) < 60) == (len(content), True)
    assert files.exists(top, path)
    assert files.read_bytes(top, path, 10**6) == content
    abandoned = write(top, "b.parquet", b"half")
    abandoned.abandon()
    assert [(inner.name, about.st_size) for inner, about in files.below(top, top)] == [("a.parquet", len(content))]


@pytest.mark.parametrize("length", [0, 1, LIMITS.whole_object_bytes, LIMITS.whole_object_bytes + 1])
def test_what_was_written_is_read_whole_and_in_parts(top: AnyPath, length: int) -> None:
    files, content = places.at(top), os.urandom(length)
    write(top, "x.bin", content).finish(top / "table")
    path = top / "table" / "x.bin"
    with files.opened(top, path) as file:
        assert file.size() == length
        assert file.read() == content
        file.seek(length // 2)
        assert file.read(10) == content[length // 2 :][:10]
    with files.open_binary(top, path) as binary:
        assert binary.seek(0, os.SEEK_END) == length
        binary.seek(length // 3)
        assert binary.read(7) + binary.read() == content[length // 3 :]
    assert files.sizes(top, [path] * 5) == [length] * 5


def test_what_is_not_there_is_said_so(top: AnyPath) -> None:
    files, path = places.at(top), top / "table" / "none"
    files.check_writable(top)
    assert not files.exists(top, path)
    assert files.entries(top, top / "table") == []
    files.unlink(top, path)
    for ask in (files.read_bytes, files.native_file, files.open_binary):
        with pytest.raises(FileNotFoundError):
            ask(top, path, 10) if ask == files.read_bytes else ask(top, path)  # type: ignore[call-arg]
    write(top, "other", b"").finish(top / "table")
    for count in (1, 5):
        with pytest.raises(FileNotFoundError):
            files.sizes(top, [path] * count)


def test_a_whole_file_is_written_or_none(top: AnyPath) -> None:
    files, path = places.at(top), top / "checkpoints" / "a.checkpoint"
    if isinstance(top, Path):
        (top / "checkpoints").mkdir()

    def fail(file: Any) -> None:
        file.write(b"half")
        raise KeyError

    with pytest.raises(KeyError):
        files.write_whole(top, path, path.with_name(".tmp"), fail)
    assert not files.exists(top, path)
    files.write_whole(top, path, path.with_name(".tmp"), lambda file: file.write(b"whole") and None)
    assert files.read_bytes(top, path, 5) == b"whole"
    with pytest.raises(HistoryFormatError, match="has 5 bytes, and no writer of a history makes it larger than 4"):
        files.read_bytes(top, path, 4)
    assert [inner.name for inner, _ in files.entries(top, top / "checkpoints")] == ["a.checkpoint"]
    files.unlink(top, path)
    assert files.entries(top, top / "checkpoints") == []


def test_an_object_is_put_only_on_the_tag_that_it_has(bucket: str) -> None:
    path = StorePath(bucket, "a/record")
    first = objects.put_if(path, b"one", None)
    assert first is not None
    assert objects.put_if(path, b"two", None) is None, "it is there"
    assert objects.put_if(path, b"two", '"another"') is None
    second = objects.put_if(path, b"two", first)
    assert second not in (None, first)
    assert objects.put_if(path, b"three", first) is None
    assert objects.read_tagged(path, 100) == (b"two", second)
    assert objects.about(path).tag == second
    assert objects.read_tagged(path, 2) is None, "too large"
    objects.unlink(path, path)
    assert objects.put_if(path, b"four", second) is None, "it is gone"
    assert objects.read_tagged(path, 100) is None


def test_a_bucket_that_is_not_there_is_named(bucket: str) -> None:
    path = StorePath("s3://none-of-that-name", "x")
    for ask in (
        lambda: objects.put(path, b""),
        lambda: objects.put_if(path, b"", None),
        lambda: objects.names(path),
        lambda: objects.read_bytes(path, path, 1),
        lambda: list(objects.below(path, path)),
    ):
        with pytest.raises(StoreFault, match="there is no bucket s3://none-of-that-name: make it first"):
            ask()


def test_what_arrow_reads_of_small_objects_is_its_own_memory(bucket: str) -> None:
    """A thread of Arrow's that lets go of memory of Python's while Python ends would end the process."""
    path = StorePath(bucket, "a")
    objects.put(path, b"x" * 1_000)
    file = objects.native_file(path, path)
    assert isinstance(file, pa.BufferReader)
    assert type(file.read_buffer(10)) is pa.Buffer


KEY = b"a key of enough characters"
ABOUT = {"snapshot_id": "20260301T000000000000Z-abcdef-000007", "run_id": "run", "aliases": []}
ID = str(ABOUT["snapshot_id"])


@pytest.fixture
def written(tmp_path: Path) -> Path:
    checkpoints.write(tmp_path, Checkpoint(ABOUT, [b"one", b"", b"three" * 1000]), KEY)
    return checkpoints.path_of(tmp_path, ID)


def test_what_was_written_is_read(written: Path, tmp_path: Path) -> None:
    found = checkpoints.read(tmp_path, ID, KEY)
    assert found == Checkpoint(ABOUT, [b"one", b"", b"three" * 1000])
    assert [path.name for path in written.parent.iterdir()] == [written.name]
    assert written.stat().st_mode & 0o077 == 0


def test_every_single_byte_that_is_changed_is_noticed(tmp_path: Path) -> None:
    checkpoints.write(tmp_path, Checkpoint(ABOUT, [b"one"]), KEY)
    path = checkpoints.path_of(tmp_path, ID)
    whole = path.read_bytes()
    for position in range(len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(CheckpointError, match="damaged, or was not written with this key"):
            checkpoints.read(tmp_path, ID, KEY)
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            checkpoints.read(tmp_path, ID, KEY)


def test_another_key_and_another_snapshots_file_are_refused(written: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="not written with this key"):
        checkpoints.read(tmp_path, ID, b"another key of enough length")
    other = ID.replace("000007", "000008")
    written.rename(checkpoints.path_of(tmp_path, other))
    with pytest.raises(CheckpointError, match="is of snapshot"):
        checkpoints.read(tmp_path, other, KEY)
    with pytest.raises(NotRestorableError, match="has no checkpoint"):
        checkpoints.read(tmp_path, ID, KEY)


@pytest.mark.parametrize("name", ["../../etc/passwd", "", ".hidden", "a/b"])
def test_what_is_no_id_is_no_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(CheckpointError, match="no snapshot's id"):
        checkpoints.path_of(tmp_path, name)


def test_a_key_file_is_made_once_for_its_owner_only_and_refused_with_other_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_SNAPSHOT_KEY", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    key = checkpoints.checkpoint_key()
    path = checkpoints.key_file()
    assert checkpoints.checkpoint_key() == key == path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(list(path.parent.iterdir())) == 1
    os.chmod(path, 0o640)
    with pytest.raises(CheckpointError, match="chmod 600"):
        checkpoints.checkpoint_key()
