"""A checkpoint is loaded whole and as it was written, or not at all; nothing of it is unpickled before that is known."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ray_snapshot.errors import CheckpointError, NotRestorableError
from ray_snapshot.history import checkpoints
from ray_snapshot.history.checkpoints import Checkpoint

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
