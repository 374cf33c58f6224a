"""The history that the fuzzer damages, made once for a file of tests."""

from __future__ import annotations

from pathlib import Path

import fuzzing
import pytest


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fuzzing.prepared(tmp_path_factory.mktemp("fuzzed"))
