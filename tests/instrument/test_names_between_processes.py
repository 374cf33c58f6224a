"""Classes, methods, actors and groups of an app may be called anything: what is put together of names comes apart again."""

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_watcher_alone import World

from ray_snapshot.instrument.here import class_in, internal_name
from ray_snapshot.instrument.hooks import headers
from ray_snapshot.instrument.watcher.joined import _part
from ray_snapshot.instrument.watcher.watcher import Watcher
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.calls import CallLedger, call_id_of, parsed

STRANGE = [
    "", " ", "a b", "a:b", "a/b", "a/0/b", "a#2", "a.b", "?", "driver", "é", "a\nb", "\x1b[31m", "x" * 5_000, "%3A", "\ud800",
]  # fmt: skip
NAMES = st.one_of(st.sampled_from(STRANGE), st.text(st.characters()))


@given(NAMES, NAMES, NAMES, NAMES)
def test_whatever_the_names_are_a_call_is_accepted_as_the_one_that_was_sent(
    caller: str, callee: str, method: str, group: str
) -> None:
    source, target = internal_name(caller, "0" * 32), internal_name(callee, "1" * 32)
    assert [class_in(source), class_in(target)] == [
        caller[: LIMITS.header_class_characters],
        callee[: LIMITS.header_class_characters],
    ]
    header = CallLedger(source).submit(target, method, (), 0.0, group=group)
    stamp, _, arrived, named = headers.unpacked(headers.packed("app:1", None, header, group))
    assert (stamp, arrived, named) == ("app:1", header, group)
    receiver = CallLedger(target)
    call_id = receiver.accept(arrived, method, 0.0, group=named)
    assert parsed(call_id) == (source, 0, target, 1)
    again = receiver.accept(arrived, method, 0.0, group=named)
    assert again != call_id
    assert parsed(again) == parsed(call_id), "a second run of the same call"


@given(st.lists(st.tuples(NAMES, st.none() | NAMES, st.none() | st.integers(0, 2)), max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_the_names_are_people_can_tell_the_machines_apart_and_read_them_in_a_line(
    monkeypatch: pytest.MonkeyPatch, actors: list[tuple[str, str | None, int | None]]
) -> None:
    async def scenario(watcher: Watcher) -> list[str]:
        watcher.processes.roster.facts[DRIVER] = {"shown": watcher.processes.roster.name_for(DRIVER, {})}
        for place, (kind, name, ordinal) in enumerate(actors):
            facts: dict[str, Any] = {"class": kind, "name": name, "ordinal": ordinal}
            machine = internal_name(kind, f"{place:032}")
            watcher.processes.roster.facts[machine] = {
                **facts,
                "shown": watcher.processes.roster.name_for(machine, facts),
            }
            await asyncio.sleep(0)
        return [str(one["shown"]) for one in watcher.processes.roster.facts.values()]

    shown = World(monkeypatch).run(scenario)
    assert shown[0] == DRIVER
    assert len(set(shown)) == len(shown)
    assert all(name.isprintable() and len(name) <= 2 * LIMITS.header_class_characters for name in shown)
    ids = {call_id_of(_part(source), 0, _part(target), 1): (source, target) for source in shown for target in shown}
    assert len(ids) == len(shown) ** 2
    assert all(parsed(call_id)[::2] == (_part(source), _part(target)) for call_id, (source, target) in ids.items())
