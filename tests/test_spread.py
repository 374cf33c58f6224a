"""Of a test with many cases some run by day, spread over all of them, and all at night."""

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from spread import spread


@pytest.mark.parametrize("count", [1, 2, 10, 46, 59])
def test_every_case_has_its_turn_and_the_first_lie_all_over(count: int) -> None:
    order = spread(count)
    assert sorted(order) == [*range(count)]
    for most in range(2, count + 1):
        first = [-1, *sorted(order[:most]), count]
        assert max(after - before for before, after in pairwise(first)) <= 3 * count / most + 1


def collected(name: str, parent: str, **marks: Any) -> Any:
    """A case of a test, as pytest has collected it."""
    found = SimpleNamespace(originalname=name, parent=parent, path=Path(parent), marks=marks)
    found.get_closest_marker = found.marks.get
    found.add_marker = lambda mark: found.marks.update({mark: mark})
    return found


def test_all_but_some_cases_of_a_test_are_for_the_night(pytestconfig: pytest.Config) -> None:
    conftest: Any = pytestconfig.pluginmanager.get_plugin(str(Path(__file__).with_name("conftest.py")))
    three = SimpleNamespace(args=(3,))
    many = [collected("test_many", "test_a.py", by_day=three) for _ in range(10)]
    others = [collected("test_many", "test_b.py", by_day=three) for _ in range(2)]
    late = [collected("test_late", "test_a.py", by_day=three, nightly=True) for _ in range(2)]
    one = collected("test_one", "test_a.py")
    conftest.pytest_collection_modifyitems([*many, *others, *late, one])
    by_day = [place for place, case in enumerate(many) if "nightly" not in case.marks]
    assert by_day == sorted(spread(10)[:3])
    assert not any("nightly" in case.marks for case in (*others, one))
    assert all(case.marks["nightly"] is True for case in late)
