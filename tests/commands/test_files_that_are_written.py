"""Files that commands write: whole, or not at all; and what is no file is left what it is."""

import os
import threading
from pathlib import Path

import pytest

from ray_snapshot.commands.files import write_file
from ray_snapshot.errors import SettingError


def test_a_file_is_replaced_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    write_file(tmp_path / "a.svg", "first")
    write_file(str(tmp_path / "a.svg"), "second \ud800")
    assert (tmp_path / "a.svg").read_text() == "second \\ud800"
    assert [path.name for path in tmp_path.iterdir()] == ["a.svg"]


def test_a_link_stays_one_and_its_file_is_written(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_file(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "text"


def test_a_pipe_stays_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_text()), daemon=True)
    reader.start()
    write_file(tmp_path / "pipe", "text")
    reader.join(30)
    assert read == ["text"]
    assert not (tmp_path / "pipe").is_file()


@pytest.mark.parametrize("where", ["no such folder/a.svg", "a file/a.svg", "."])
def test_what_cannot_be_written_is_said_with_its_name(tmp_path: Path, where: str) -> None:
    (tmp_path / "a file").write_text("")
    with pytest.raises(SettingError, match="cannot be written: "):
        write_file(tmp_path / where, "text")
    assert [path.name for path in tmp_path.iterdir()] == ["a file"]
