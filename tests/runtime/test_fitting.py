"""What the driver refuses to send, told from the class alone; no Ray in here."""

import functools
import typing
from collections.abc import Callable
from typing import Any

import pytest

import ray_snapshot as rs
from ray_snapshot import MachineHandle, Settings
from ray_snapshot.runtime.driver.post import _check
from ray_snapshot.runtime.fitting import check_fits
from ray_snapshot.runtime.handles import forget_handles, handle_of, note_kinds
from ray_snapshot.runtime.settings import OF_WATCHES, SettingsGiven, WatchSettingsGiven


def _with_another(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def wrapper(self: Any, *args: Any) -> Any:
        return method(self, *args, "another")

    return wrapper


class Account(rs.SnapshotMixin):
    def __init__(self, balance: int) -> None:
        self.balance = balance
        self.hook = print

    def deposit(self, amount: int, note: str = "") -> None: ...

    def report(self, *names: str, to: str) -> None: ...

    def gather(self, *values: int, **more: int) -> None: ...

    def nothing(*given: Any) -> None: ...

    @_with_another
    def pair(self, one: int, other: str) -> None: ...

    @staticmethod
    def sort(values: list[int]) -> None: ...

    @rs.join("left", "right")
    def close(self, left: int, right: int) -> None: ...


class Open(rs.SnapshotMixin):
    def __getattr__(self, name: str) -> Any:
        return print


FITS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("deposit", (1,), {}),
    ("deposit", (1, "tip"), {}),
    ("deposit", (), {"amount": 1}),
    ("report", ("a", "b"), {"to": "c"}),
    ("gather", (1, 2, 3), {"four": 4}),
    ("gather", tuple(range(2_000)), {}),
    ("nothing", (1, 2), {}),
    ("pair", (1,), {}),
    ("sort", ([1],), {}),
    ("left", (1,), {}),
    ("left", (), {}),
    ("hook", (1, 2), {}),
]


RUN = "a run"


def unknown() -> MachineHandle[Account]:
    forget_handles(RUN)
    return handle_of(RUN, "a")


@pytest.mark.parametrize(("method", "args", "kwargs"), FITS, ids=str)
def test_what_fits_is_sent(method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    handle = unknown()
    note_kinds(RUN, ["a"], Account)
    _check(handle, method, args, kwargs)
    check_fits(Account, "a", method, args, kwargs)


@pytest.mark.parametrize(
    ("method", "args", "kwargs", "said"),
    [
        ("deposit", (), {}, "a.deposit: missing a required argument: 'amount'; it is Account.deposit(amount"),
        ("deposit", (1, "tip", 3), {}, "a.deposit: too many positional arguments; it is Account.deposit(amount"),
        ("deposit", (1,), {"tip": 3}, "a.deposit: got an unexpected keyword argument 'tip'; it is"),
        ("report", ("a",), {}, "a.report: missing a required"),
        ("close", (1,), {}, "a.close: missing a required argument: 'right'"),
        ("left", (), {"value": 1}, "a.left: got an unexpected keyword argument 'value'"),
    ],
)
def test_what_does_not_fit_is_a_type_error_with_the_methods_signature(
    method: str, args: tuple[Any, ...], kwargs: dict[str, Any], said: str
) -> None:
    handle = unknown()
    _check(handle, method, args, kwargs)  # by name alone nothing is known of it
    note_kinds(RUN, ["a"], Account)
    for _ in range(2):
        with pytest.raises(TypeError) as caught:
            _check(handle, method, args, kwargs)
        assert str(caught.value).startswith(said)
        assert str(caught.value).endswith("; nothing was sent")
    assert isinstance(caught.value, rs.WrongArgumentsError)
    assert (caught.value.machine, caught.value.method) == ("a", method)


def test_a_method_that_is_not_there_is_refused_unless_the_class_answers_for_every_name() -> None:
    with pytest.raises(rs.UnknownMethodError, match=r"a \(Account\) has no method 'burn'"):
        check_fits(Account, "a", "burn", (), {})
    check_fits(Open, "o", "burn", (1,), {"two": 2})


def test_the_types_of_settings_are_those_that_are_checked_at_run_time() -> None:
    """`SettingsGiven` is for type checkers, `Settings` for the program."""
    checked = {name: field.annotation for name, field in Settings.model_fields.items()}
    of_systems = {name: kind for name, kind in checked.items() if name not in OF_WATCHES}
    assert typing.get_type_hints(SettingsGiven) == of_systems
    assert typing.get_type_hints(WatchSettingsGiven).items() <= checked.items()


def test_what_shows_objects_is_not_told_that_a_handle_has_a_way_to_be_shown() -> None:
    """Jupyter, IPython and Hypothesis ask for these names, and call what they get."""
    handle: MachineHandle[Account] = MachineHandle("a run", "a")
    for name in ("_repr_html_", "_repr_pretty_", "_ipython_display_", "__wrapped__"):
        assert not hasattr(handle, name)
    assert (handle._private.method, handle._tick_.method) == ("_private", "_tick_")
    assert not hasattr(handle, "half\ud800"), "no snapshot could hold it"
    assert getattr(handle, "").method == "", "an error of another kind would pass through hasattr"
