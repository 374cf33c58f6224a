"""What a watched process remembers of refs that came to it and of actors that it makes: no Ray in here."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest
from limited import limit

from ray_snapshot.instrument.process.making import Making
from ray_snapshot.instrument.process.passed import PassedRefs
from ray_snapshot.protocol.call_messages import OutReport, Sent
from ray_snapshot.protocol.calls import CONSTRUCTOR, MachineReport, call_id_of


def test_of_refs_that_came_long_ago_only_the_machine_that_answers_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, passed_refs=2)
    refs = PassedRefs()
    calls = [call_id_of("a", 0, target, number) for target, number in (("b", 1), ("b", 2), ("c", 1), ("d", 1))]
    for call_id in calls:
        refs.add(call_id)
    assert refs.known() == (tuple(calls[2:]), ("b",))


def birth(kind: str, ordinal: int) -> dict[str, Any]:
    return {"kind": kind, "name": None, "ordinal": ordinal, "key": f"{ordinal}", "more": "of Ray's"}


def report_of(*targets: str) -> MachineReport:
    """The report of a process with these constructors in its log."""
    sent = MappingProxyType({CONSTRUCTOR: Sent("__init__", None, 0.0)})
    outputs = tuple(OutReport(target, 1, 0, 0, sent) for target in targets)
    return MachineReport("driver", 0, 1, 0, outputs=(*outputs, OutReport("old", 3, 3, 3, MappingProxyType({}))))


def test_actors_of_a_class_are_counted_by_themselves() -> None:
    making = Making()
    assert [making.ordinal(kind) for kind in ("Shop", "Till", "Shop")] == [0, 0, 1]


def test_what_names_an_actor_is_told_until_its_constructor_is_known_to_have_begun() -> None:
    making = Making()
    for machine, ordinal in (("old", 0), ("new", 1), ("newer", 2)):
        making.made(machine, birth("Shop", ordinal))
    first = making.unborn(report_of("new", "newer", "of another maker"))
    shop = {"class": "Shop", "name": None}
    assert first == {f"new{end}": {**shop, "ordinal": n, "key": f"{n}"} for n, end in ((1, ""), (2, "er"))}
    making.made("next", birth("Shop", 3))
    assert [*first] == ["new", "newer"], "what was reported does not change any more"
    assert [*making.unborn(report_of("newer"))] == ["newer"]
    assert making.unborn(report_of("new", "newer")).keys() == {"newer"}
