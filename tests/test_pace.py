"""How often snapshots are to be taken, as a program or a command line says it."""

import pytest

from ray_snapshot.errors import SettingError
from ray_snapshot.pace import every_of, share_of
from ray_snapshot.runtime.settings import settings_of


@pytest.mark.parametrize(
    ("given", "meant", "share"),
    [
        (0.5, 0.5, None),
        (2, 2.0, None),
        ("0.05", 0.05, None),
        ("1%", "1%", 0.01),
        (" 0.50 % ", "0.5%", 0.005),
        ("50%", "50%", 0.5),
    ],
)
def test_seconds_and_shares(given: object, meant: float | str, share: float | None) -> None:
    assert every_of(given) == meant
    assert share_of(meant) == (None if share is None else pytest.approx(share))
    assert settings_of({"every": given}).every == meant


@pytest.mark.parametrize(
    "given", [0, -1, True, "often", "%", "-1%", "1 percent", float("inf"), float("nan"), [1], "1%%"]
)
def test_anything_else_is_refused_with_what_may_be_given(given: object) -> None:
    with pytest.raises(SettingError, match='like "1%"'):
        every_of(given)


@pytest.mark.parametrize("given", ["0%", "51%", "100%"])
def test_a_share_is_neither_nothing_nor_most(given: str) -> None:
    with pytest.raises(SettingError, match="more than 0 and at most 50"):
        settings_of({"every": given})


def test_a_command_has_a_least() -> None:
    with pytest.raises(SettingError, match=r"0\.05 or more"):
        every_of("0.01", 0.05)
