"""Which system joins the watch of its program, and what is said where it does not."""

from itertools import islice
from typing import Any

import pytest

from ray_snapshot import Settings
from ray_snapshot.errors import SettingError
from ray_snapshot.runtime import joining
from ray_snapshot.runtime.joining import names_to_try, to_join
from ray_snapshot.runtime.settings import settings_of


class Watched:
    def __init__(self, **given: Any) -> None:
        self.is_asked_for = True
        self.is_checkpointing = False
        self.joined: Any = None
        self.history: str | None = None
        self.settings = settings_of({})
        self.__dict__.update(given)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watched:
    found = Watched()
    monkeypatch.setattr(joining, "WATCHES", [found])
    return found


def test_without_a_watch_a_system_is_its_own() -> None:
    assert to_join("bank", settings_of({}), None) is None


@pytest.mark.parametrize("protocol", ["chandy-lamport", "observer"])
def test_a_system_joins_the_watch_of_its_program(watch: Watched, protocol: str, caplog: Any) -> None:
    assert to_join("bank", settings_of({"protocol": protocol}), None) is watch
    watch.history = "/h"
    assert to_join("bank", settings_of({}), "/h") is watch
    assert to_join("bank", settings_of({}), None) is watch
    watch.is_checkpointing = True
    assert to_join("bank", settings_of({"checkpoint": True}), None) is watch
    assert to_join("bank", settings_of({}), None) is watch
    assert caplog.messages == []


def test_a_barrier_protocol_is_refused_beside_a_watch_that_the_program_has_asked_for(watch: Watched) -> None:
    with pytest.raises(SettingError, match=r"aligned-barrier.*beside rs.watch\(\): a process has one colour"):
        to_join("bank", settings_of({"protocol": "aligned-barrier"}), None)


@pytest.mark.parametrize(
    ("changed", "given", "history", "reason"),
    [
        ({"is_asked_for": False}, {"protocol": "unaligned-barrier"}, None, "it is under unaligned-barrier: a process has"),
        ({"joined": object()}, {}, None, "another system of this program has joined"),
        ({}, {"checkpoint": True}, None, "it keeps checkpoints, and they do not: rs.watch(checkpoint=True)"),
        ({}, {"recover": "rollback"}, None, "recover= is for machines alone, or for actors alone"),
        (
            {"settings": settings_of({"recover": "rollback"}), "is_checkpointing": True},
            {},
            None,
            "recover= is for machines alone",
        ),
        ({}, {"trace": True}, "/h", "trace=True logs machines only"),
        ({}, {}, "/h", "its history is /h, and theirs is none: give both the same"),
        ({"history": "/w"}, {}, "/h", "its history is /h, and theirs is /w: give both the same"),
    ],
)  # fmt: skip
def test_a_system_that_cannot_join_stays_apart_and_it_is_said_why(
    watch: Watched, changed: Any, given: Any, history: str | None, reason: str, caplog: Any
) -> None:
    watch.__dict__.update(changed)
    settings: Settings = settings_of(given)
    assert to_join("bank", settings, history) is None
    (told,) = caplog.messages
    assert told.startswith("ray-snapshot: the system bank and the actors beside it are not one system: ")
    assert reason in told


@pytest.mark.parametrize(
    ("called", "is_asked_for", "tried"),
    [("app", False, ["bank"]), ("bank", True, ["bank"]), ("bank", False, ["bank", "bank-2"])],
)
def test_a_program_may_use_the_name_that_run_has_given_to_the_watch(
    watch: Watched, called: str, is_asked_for: bool, tried: list[str], caplog: Any
) -> None:
    watch.__dict__.update(name=called, is_asked_for=is_asked_for)
    assert [*islice(names_to_try("bank"), 2)] == tried
    assert ("bank is called bank-2" in caplog.text) is (len(tried) > 1)
