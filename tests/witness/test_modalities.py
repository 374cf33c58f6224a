"""Possibly and definitely, held against all cuts and all paths of small runs."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ray_snapshot.witness import modalities
from ray_snapshot.witness.modalities import Causes, Cut, cuts_of, definitely, definitely_each, possibly, possibly_each


@st.composite
def runs(draw: st.DrawFn, machines: int = 3, most: int = 7) -> Causes:
    """Each action may accept messages of actions before it."""
    names = "abc"[: draw(st.integers(1, machines))]
    counts = dict.fromkeys(names, 0)
    done: list[tuple[str, int]] = []
    actions = []
    for _ in range(draw(st.integers(0, most))):
        name = draw(st.sampled_from(names))
        behind = draw(st.lists(st.sampled_from(done), max_size=2)) if done else []
        actions.append((name, behind))
        counts[name] += 1
        done.append((name, counts[name]))
    return cuts_of([*actions, *((name, []) for name in names if not counts[name])])


@st.composite
def moments(draw: st.DrawFn) -> tuple[Causes, dict[str, list[bool]]]:
    causes = draw(runs())
    asked = draw(st.lists(st.sampled_from(causes.machines), unique=True, min_size=1))
    return causes, {name: [draw(st.booleans()) for _ in causes.known[causes.machines.index(name)]] for name in asked}


def all_cuts(causes: Causes) -> list[Cut]:
    return [cut for cut in product(*(range(len(one)) for one in causes.known)) if causes.is_consistent(cut)]


def is_avoidable(causes: Causes, holds: Any, cut: Cut) -> bool:
    """Whether a path leads from a cut to the end on which it never holds: slowly, path by path."""
    if holds(cut):
        return False
    return cut == causes.last or any(is_avoidable(causes, holds, one) for one in causes.after(cut))


def both(causes: Causes, true: dict[str, list[bool]]) -> Any:
    place = {name: causes.machines.index(name) for name in true}
    return lambda cut: all(true[name][cut[at]] for name, at in place.items())


@given(moments())
@settings(max_examples=80)
def test_each_by_itself_is_what_going_through_all_cuts_finds(given: tuple[Causes, dict[str, list[bool]]]) -> None:
    causes, true = given
    holds, start = both(causes, true), (0,) * len(causes.machines)
    found = possibly_each(causes, true)
    assert found.holds is any(map(holds, all_cuts(causes)))
    if found.cut is not None:
        assert holds(found.cut)
        assert causes.is_consistent(found.cut)
        assert all(
            any(a < b for a, b in zip(found.cut, one, strict=True)) or one == found.cut
            for one in all_cuts(causes)
            if holds(one)
        )
    assert definitely_each(causes, true).holds is not is_avoidable(causes, holds, start)


@given(moments())
@settings(max_examples=60)
def test_any_predicate_is_asked_on_every_cut(given: tuple[Causes, dict[str, list[bool]]]) -> None:
    causes, true = given
    holds, cuts = both(causes, true), all_cuts(causes)
    found = possibly(causes, holds, 10_000)
    assert (found.holds, possibly(causes, lambda _: False, 10_000).cuts) == (any(map(holds, cuts)), len(cuts))
    must = definitely(causes, holds, 10_000)
    assert must.holds is not is_avoidable(causes, holds, (0,) * len(causes.machines))
    if must.path:
        assert (must.path[0], must.path[-1]) == ((0,) * len(causes.machines), causes.last)
        assert not any(map(holds, must.path))
        assert all(later in causes.after(before) for before, later in zip(must.path, must.path[1:], strict=False))


def test_a_bound_that_is_too_small_is_no_answer() -> None:
    causes = cuts_of([("a", []), ("b", []), ("a", []), ("b", [])])
    for ask in (possibly, definitely):
        assert ask(causes, lambda _: False, 8).holds is None
        assert ask(causes, lambda _: False, 9).holds is False


def test_two_critical_sections_that_were_never_seen_at_once() -> None:
    """a leaves before b enters, by the clock; but nothing that b knows of says so."""
    apart = cuts_of([("a", []), ("a", []), ("b", []), ("b", [])])
    inside = {"a": [False, True, False], "b": [False, True, False]}
    assert possibly_each(apart, inside).cut == (1, 1)
    assert definitely_each(apart, inside).holds is False
    told = cuts_of([("a", []), ("a", []), ("b", [("a", 2)]), ("b", [])])
    assert possibly_each(told, inside).holds is False


def test_what_must_have_been() -> None:
    """Each enters before it hears that the other has, and leaves behind that."""
    causes = cuts_of([("a", []), ("b", []), ("a", [("b", 1)]), ("b", [("a", 1)])])
    found = definitely_each(causes, {"a": [False, True, False], "b": [False, True, False]})
    assert (found.holds, found.cut) == (True, (1, 1))


def test_a_stretch_of_true_moments_is_one() -> None:
    """Nothing is known of who is where within it, but that each had begun before the other ended."""
    causes = cuts_of([("a", []), ("a", []), ("b", []), ("b", []), ("a", [("b", 1)]), ("b", [("a", 1)])])
    true = [False, True, True, False]
    assert definitely_each(causes, {"a": true, "b": true}).holds is True
    assert definitely_each(causes, {"a": true, "b": [False, False, True, False]}).holds is False


MUTANTS = {
    "_begins_before": lambda function: lambda causes, at, first, other, last: True,
    "_intervals": lambda function: lambda true: [(count, count) for count, one in enumerate(true) if one],
    "_next": lambda function: lambda true, first: function(true, max(1, first)),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_answer_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modalities, name, MUTANTS[name](getattr(modalities, name)))

    def tried() -> None:
        test_a_stretch_of_true_moments_is_one()
        test_each_by_itself_is_what_going_through_all_cuts_finds()

    with pytest.raises(BaseException):  # noqa: B017, PT011 - Hypothesis groups failures
        tried()
