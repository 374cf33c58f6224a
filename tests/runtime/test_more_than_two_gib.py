"""A snapshot whose states, and whose arguments, are longer than the 2 GiB that one Arrow array may hold."""

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from ray_snapshot import detectors
from ray_snapshot.encoding import to_json
from ray_snapshot.runtime import message_columns
from ray_snapshot.runtime.assembly import Also, assembled
from ray_snapshot.runtime.collected import SnapshotHeader
from ray_snapshot.runtime.ends import ENDS
from ray_snapshot.runtime.machine_columns import machine_columns
from ray_snapshot.runtime.report import BodyCopy, HostPart
from ray_snapshot.runtime.rows import END_ROW

WEIGHTS = bytes(5_800_000)
COUNT = 280


@pytest.mark.nightly
def test_it_is_put_together_judged_and_counted_as_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    state, args = to_json({"weights": WEIGHTS, "tokens": 1}), to_json([WEIGHTS, 1])
    assert not state.truncated
    assert COUNT * len(args.text) > 2**31
    monkeypatch.setattr(message_columns, "to_json", lambda _: args)  # each would take 20 ms, and is the same

    def part(host: str, names: list[str], end: tuple[Any, ...], messages: int) -> HostPart:
        body = BodyCopy("Model", "passive", state)
        copies = [SimpleNamespace(machine=name, accepted=0, sent=0, extra=body) for name in names]
        copies[0].sent = end[3]
        in_flight = message_columns.InFlight()
        if messages:
            sent = [(1, number, "go", (WEIGHTS, 1), 1.0, 0) for number in range(1, messages + 1)]
            in_flight.add("b-0", "a-0", "mail", sent)
        ends = pa.Table.from_pylist([dict(zip(END_ROW, end, strict=True))], schema=ENDS)
        machines = machine_columns(copies, host, 0)  # type: ignore[arg-type]
        return HostPart(in_flight.table(), ends, machines=machines)

    parts = [
        part("host-1", [f"b-{at}" for at in range(COUNT // 2)], ("b-0", "a-0", "mail", COUNT, 0, 0, 0, 0), 0),
        part("host-0", [f"a-{at}" for at in range(COUNT)], ("b-0", "a-0", "mail", 0, 0, COUNT, 0, 0), COUNT),
    ]
    snapshot = assembled(SnapshotHeader(1, "shop", "run-1", "observer", [], 0.0, 1.0), parts, Also())
    assert snapshot.consistent
    assert snapshot.in_flight_count == COUNT
    names = snapshot.tables["machines"]["machine"].to_pylist()
    assert names == sorted(names)
    total = COUNT + COUNT // 2 + COUNT
    conserved = detectors.TokenConservation(total=total, state="$.tokens", messages={"go": "$[1]"})
    assert conserved.evaluate(snapshot).holds
