"""`docs/machines.md`: its code runs as it stands, and its table of settings is the settings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ray_snapshot.runtime.system import Settings

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "machines.md").read_text(encoding="utf-8")


@pytest.mark.nightly
@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_every_block_of_code_runs_one_after_the_other() -> None:
    namespace: dict[str, Any] = {"__name__": "machines_page"}
    blocks = list(re.finditer(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))
    assert len(blocks) == PAGE.count("```python")
    for block in blocks:
        above = "\n" * PAGE.count("\n", 0, block.start(1))  # so that an error names the line of the page
        exec(compile(above + block[1], "docs/machines.md", "exec"), namespace)


def test_the_table_of_settings_names_each_with_its_default() -> None:
    listed = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", PAGE.partition("## Settings")[2], re.MULTILINE))
    known = {name: field.default for name, field in Settings.model_fields.items()}
    assert {name: text.strip("` ").replace(",", "") for name, text in listed.items()} == {
        name: str(default) for name, default in known.items()
    }
