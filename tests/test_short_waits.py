"""What a row of `machines` says of a machine's rows of `waits`: that, or to see them."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ray_snapshot.waits import SEE_WAITS, short_form_of

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "call_id": st.sampled_from([None, "c/1"]),
            "alternative": st.integers(0, 1),
            "k": st.integers(1, 3),
            "on_machine": st.sampled_from(["a", "b", "c", None]),
        }
    ),
    max_size=4,
)


def _grouped(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        group = groups.setdefault((row["call_id"], row["alternative"]), [])
        group.append({**row, "k": group[0]["k"] if group else row["k"]})
    return groups


@given(ROWS)
def test_the_short_form_agrees_with_the_rows_or_says_to_see_them(rows: list[dict[str, Any]]) -> None:
    groups = _grouped(rows)
    rows = [row for group in groups.values() for row in group]
    mode, k, names = short_form_of(rows)
    assert set(names) == {row["on_machine"] for row in rows} - {None}
    if mode in (None, SEE_WAITS):
        assert k is None
        assert (mode is None) == (not rows)
        return
    ((group),) = groups.values()
    on = [row["on_machine"] for row in group]
    assert None not in on
    assert k == group[0]["k"]
    assert {"all": k == len(on), "any": k == 1, "k_of_n": list(names) == on}[mode]


def test_one_list_of_machines_has_a_short_form() -> None:
    def row(on: str, k: int) -> dict[str, Any]:
        return {"call_id": None, "alternative": 0, "k": k, "on_machine": on}

    assert short_form_of([row("a", 1), row("b", 1)]) == ("any", 1, ("a", "b"))
    assert short_form_of([row("a", 2), row("b", 2)]) == ("all", 2, ("a", "b"))
    assert short_form_of([row("a", 2), row("b", 2), row("c", 2)]) == ("k_of_n", 2, ("a", "b", "c"))
