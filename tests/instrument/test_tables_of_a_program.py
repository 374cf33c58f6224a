"""What Ray's own tables show of us to a program that is watched: what `docs/reference/watched.md` says, and no more."""

import json
from pathlib import Path

import pytest
from app_runner import Runner

PROGRAM = str(Path(__file__).parent / "tables_driver.py")
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "watched.md"

MOST_REFS = 8
"""Of calls to the watcher that may be under way at once in a process of so small an app."""


@pytest.mark.ray
@pytest.mark.nightly
@pytest.mark.usefixtures("ray_cluster")
def test_rays_tables_show_one_actor_a_hook_and_a_few_refs_of_ours(runner: Runner) -> None:
    plain, watched = (json.loads(done.output) for done in runner.both("tables", PROGRAM, "tables"))
    assert plain["refs"] == [0, 0]
    assert all(1 <= count <= MOST_REFS for count in watched.pop("refs"))
    assert watched.pop("actors") == [*plain["actors"], ["Watcher", "system:tables"]]
    assert (plain["environment"], watched.pop("environment")) == ([], ["env_vars", "worker_process_setup_hook"])
    assert watched == {"timeline": plain["timeline"], "named": []}


@pytest.mark.contract
def test_the_page_names_what_is_seen() -> None:
    found = PAGE.read_text().partition("In Ray's own tables")[2].partition("`ray.get`")[0]
    assert all(
        word in found
        for word in ("`Watcher`", "`system:NAME`", "`ray-snapshot`", "`env_vars`", "`worker_process_setup_hook`")
    )
