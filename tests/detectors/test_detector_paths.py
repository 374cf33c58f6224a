"""Paths into JSON: what is understood, what is found, what is refused."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import ray_snapshot as rs
from ray_snapshot.detectors.json_path import MISSING, compile_path

VALUE = {"balance": 7, "pots": [{"big one": 1}, {"big one": [2, 3]}], "a.b": 4, "0": 5, "none": None, "é": 6}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("$", VALUE),
        ("$.balance", 7),
        ("$['balance']", 7),
        ('$["balance"]', 7),
        ("$.pots[1]['big one'][0]", 2),
        ("$['a.b']", 4),
        ("$['0']", 5),
        ("$.0", 5),
        ("$.é", 6),
        ("$.none", None),
        ("$.none.x", MISSING),
        ("$[0]", MISSING),
        ("$.pots.big", MISSING),
        ("$.pots[2]", MISSING),
        ("$.balance[0]", MISSING),
        ("$.Balance", MISSING),
    ],
)
def test_a_path_finds_what_it_leads_to(path: str, found: Any) -> None:
    assert compile_path(path).find(VALUE) is found or compile_path(path).find(VALUE) == found


@pytest.mark.parametrize(
    "path",
    ["", "balance", ".balance", "$balance", "$.", "$..a", "$.a.", "$[", "$[-1]", "$[*]", "$[1:2]", "$['a'",
     "$['']", "$['a?']", "$. a", "$.a[?(@.b)]", "$[0]x", "$[9999999999]", "$[\u0661]", None, 3],
)  # fmt: skip
def test_everything_else_is_refused_with_the_path_in_the_message(path: Any) -> None:
    with pytest.raises(rs.SettingError) as error:
        compile_path(path)
    assert repr(path) in str(error.value)


def test_a_compiled_path_and_what_it_does_not_find_survive_a_pickle() -> None:
    path = pickle.loads(pickle.dumps(compile_path("$.x[0]")))
    assert path.find({"x": [1]}) == 1
    assert pickle.loads(pickle.dumps(MISSING)) is MISSING
