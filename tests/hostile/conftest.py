"""Histories to damage: that of the fuzzer, made once for a file of tests; and a small one, of which each test has a copy."""

import shutil
from pathlib import Path

import crafted
import fuzzing
import pytest


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fuzzing.prepared(tmp_path_factory.mktemp("fuzzed"))


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return crafted.plain_history(tmp_path_factory.mktemp("pristine") / "history")


@pytest.fixture
def history(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "history", symlinks=True))
