"""`pytest --ray-snapshot` beside the plugins that many suites have: coroutines as tests, time limits, second tries."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.contract

pytest_plugins = "pytester"
COMPANIONS = Path(__file__).parent / "companions.py"


@pytest.mark.nightly
@pytest.mark.ray
def test_a_deadlock_is_told_in_coroutines_before_time_limits_and_in_each_try(suite, pytester: pytest.Pytester) -> None:  # type: ignore[no-untyped-def]
    pytester.makepyfile(test_companions=COMPANIONS.read_text(encoding="utf-8"))
    ran = suite("--ray-snapshot", "--ray-snapshot-grace=1", "test_companions.py")
    assert ran.outcomes == {
        "test_that_awaits": "FAILED",
        "test_that_awaits_what_comes": "PASSED",
        "test_with_a_limit_by_signal": "FAILED",
        "test_with_a_limit_by_thread": "FAILED",
        "test_past_its_limit": "FAILED",
        "test_that_hangs_once": "PASSED",
        "test_that_expects_it_at_last": "PASSED",
    }, ran.text
    assert ", 2 rerun in " in ran.text, ran.text
    for name in ("test_that_awaits", "test_with_a_limit_by_signal", "test_with_a_limit_by_thread"):
        assert f"DeadlockError: deadlock in test_companions.py::{name} (snapshot " in ran.text, ran.text
    assert "Timeout (>2.0s)" in ran.text, ran.text
