"""Programs as users write them print the same and end in the same way, whether they are watched or not.

Each starts a Ray of its own. They run by night; those that need Ray's libraries or uvloop run with `make test-libraries`.
"""

from collections.abc import Iterator

import pytest
from catalogue import ALL, Program
from comparing import compare


def _marks(program: Program) -> Iterator[pytest.MarkDecorator]:
    if program.needs_libraries:
        yield pytest.mark.libraries
    else:
        yield pytest.mark.nightly


@pytest.mark.parametrize("program", [pytest.param(one, id=one.name, marks=[*_marks(one)]) for one in ALL])
def test_a_program_behaves_as_it_does_unwatched(program: Program) -> None:
    result = compare(program)
    assert result.differences == []
    assert program.is_short or bool(result.shares["deadlock"].snapshots) is program.is_watched
