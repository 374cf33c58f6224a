"""The table of classes: which fields the states of a class had, in which run."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from histories import START
from pydantic import BaseModel

from ray_snapshot import Snapshot
from ray_snapshot.history import History, HistoryWriter
from ray_snapshot.shapes import shape_of


class Limits(BaseModel):
    daily: int = 5
    password: str = "in-the-default"


class Account:
    balance: int
    limits: Limits | None

    def __init__(self) -> None:
        self.balance = 5
        self.limits = Limits()
        self.owner = "bob"


@dataclass
class State:
    count: int


def fields(shape: Any) -> dict[str, str]:
    import json

    return {item["name"]: item["type"] for item in json.loads(shape.fields)}


def test_a_shape_has_field_names_and_types_and_the_schema_of_models() -> None:
    shape = shape_of(Account, vars(Account()))
    assert shape is not None
    assert fields(shape) == {"balance": "int", "limits": "Limits | None", "owner": "builtins.str"}
    assert '"limits":{' in str(shape.json_schema)
    assert '"daily":{' in str(shape.json_schema)
    assert shape_of(Account, vars(Account())) is shape
    wider = shape_of(Account, {**vars(Account()), "more": 1.5})
    assert wider is not None
    assert wider.version != shape.version


def test_states_of_every_kind_have_a_shape() -> None:
    assert fields(shape_of(Account, State(5))) == {"count": "int"}
    assert fields(shape_of(Account, namedtuple("Pair", "a b")(1, None))) == {
        "a": "builtins.int",
        "b": "builtins.NoneType",
    }
    model = shape_of(Account, Limits())
    assert fields(model) == {"daily": "int", "password": "str"}
    assert '"title":"Limits"' in str(model and model.json_schema)
    for value in (None, 5, [1], {1: 2}):
        assert shape_of(Account, value) is None


def of_class(number: int, state: dict[str, Any], run: str) -> Snapshot:
    return Snapshot.from_rows(
        machines=[{"machine": name, "class_name": "Account", "state": state} for name in "ab"],
        snapshot_id=f"bank-{number:05d}",
        system="bank",
        run_id=run,
        started_at=START,
    )


def test_states_of_a_class_that_changes_stay_readable_side_by_side(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path) as writer:
        for number in range(3):
            writer.add(of_class(number, {"balance": number}, "old"))
    with HistoryWriter(tmp_path) as writer:
        writer.add(of_class(3, {"balance": 3}, "old"))
        found = of_class(4, {"cents": 400, "currency": "EUR"}, "new")
        shape = shape_of(Account, {"cents": 400, "currency": "EUR"})
        assert shape is not None
        found.shapes = (shape,)
        writer.add(found)
    history = History(tmp_path)
    assert [row.state for row in history.machines(machine="a")] == [
        *({"balance": number} for number in range(4)),
        {"cents": 400, "currency": "EUR"},
    ]
    rows = history.classes("Account")
    assert sorted((row.run_id, row.module, [item["name"] for item in row.fields]) for row in rows) == [
        ("new", __name__, ["cents", "currency"]),
        ("old", None, ["balance"]),
    ]
    assert {row.system for row in history.classes()} == {"bank"}
    assert history.classes("Nobody") == []
