"""What Ray makes of a call's arguments with a header among them: the same, and no more of it than must be."""

import inspect
import sys
import traceback
from collections.abc import Iterator
from inspect import Parameter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lone_process import lone_process
from ray import cloudpickle
from ray._common import signature
from ray._private.function_manager import FunctionActorManager

from ray_snapshot.instrument import shape
from ray_snapshot.instrument.hooks import attaching, calls, headers
from ray_snapshot.instrument.hooks.headers import HEADER, MARK, flattening, packed, recovering, unpacked, validating
from ray_snapshot.protocol.calls import Header

FLATTEN, RECOVER, VALIDATE = signature.flatten_args, signature.recover_args, signature.validate_args
NAMES = ("a", "b", "c", "d", "e")
KINDS = [*type(Parameter.POSITIONAL_ONLY)]
WIRE = b"app:1 None driver 0 0 17 0 1"

values = st.one_of(
    st.none(), st.integers(), st.text(max_size=3), st.binary(max_size=3), st.just(MARK + WIRE), st.just(MARK)
)


@st.composite
def signatures(draw: st.DrawFn) -> list[Parameter]:
    kinds = sorted(draw(st.lists(st.sampled_from(KINDS), max_size=5)), key=int)
    found: list[Parameter] = []
    has_default = False
    for name, kind in zip(NAMES, kinds, strict=False):
        is_many = kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
        if is_many and any(other.kind is kind for other in found):
            continue
        if is_many:
            found.append(Parameter(name, kind))
            continue
        by_place = kind is not Parameter.KEYWORD_ONLY
        with_default = draw(st.booleans()) or (by_place and has_default)
        has_default = has_default or (by_place and with_default)
        found.append(Parameter(name, kind, default=0 if with_default else Parameter.empty))
    return found


def outcome(check: Any, *given_: Any) -> str | None:
    try:
        check(*given_)
    except TypeError as error:
        return str(error)
    return None


@given(
    signatures(),
    st.lists(st.integers(), max_size=6),
    st.dictionaries(st.sampled_from((*NAMES, "f")), st.integers()),
    st.booleans(),
)
def test_arguments_are_taken_and_refused_as_by_ray_with_the_same_words(
    parameters: list[Parameter], args: list[int], kwargs: dict[str, int], is_list: bool
) -> None:
    asked = (parameters, args if is_list else tuple(args), kwargs)
    assert outcome(validating(VALIDATE), *asked) == outcome(VALIDATE, *asked)


def test_what_fits_is_not_bound_to_a_signature() -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("it was")

    check = validating(refuse)
    for function, counts in (
        (lambda: 0, [0]),
        (lambda a, b=1: 0, [1, 2]),
        (lambda a, *b, c=1: 0, [1, 2, 9]),
        (lambda **b: 0, [0]),
    ):
        for count in counts:
            check([*inspect.signature(function).parameters.values()], (0,) * count, {})  # type: ignore[arg-type]


def test_arguments_that_can_be_read_once_are_left_for_ray() -> None:
    read: list[Any] = []
    once = iter([1, 2])
    validating(lambda _parameters, args, _kwargs: read.append(args))([], once, {})
    assert read == [once]
    assert [*once] == [1, 2]


@given(st.lists(values, max_size=3), st.dictionaries(st.sampled_from(NAMES), values, max_size=3))
def test_a_header_comes_with_the_arguments_as_they_were(args: list[Any], kwargs: dict[str, Any]) -> None:
    anything = [Parameter("args", Parameter.VAR_POSITIONAL), Parameter("kwargs", Parameter.VAR_KEYWORD)]
    given_ = {**kwargs, HEADER: WIRE}
    flat = flattening(FLATTEN)(anything, tuple(args), given_)
    plain = FLATTEN(anything, tuple(args), kwargs)
    assert len(flat) == len(plain) + (not args), "it takes the place of a name that is always the same"
    assert given_ == {**kwargs, HEADER: WIRE}, "the app's own may be among them"
    recover = recovering(RECOVER, signature.DUMMY_TYPE)
    assert recover(list(flat)) == (args, {**kwargs, HEADER: WIRE})
    assert recover(list(plain)) == RECOVER(list(plain)) == (args, kwargs)


@pytest.mark.parametrize(("given_", "kwargs"), [([], {}), ([5], {}), ([], {"b": 1}), ([5], {"b": 1})])
def test_a_header_takes_no_name_of_arguments_that_could_be_read_only_once(
    given_: list[Any], kwargs: dict[str, int]
) -> None:
    parameters = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=0) for name in ("a", "b")]
    plain = RECOVER(FLATTEN(parameters, iter(given_), kwargs))
    flat = flattening(FLATTEN)(parameters, iter(given_), {**kwargs, HEADER: WIRE})
    assert recovering(RECOVER, signature.DUMMY_TYPE)(flat) == (plain[0], {**plain[1], HEADER: WIRE})


def test_keywords_that_are_a_dictionary_of_the_apps_own_are_only_handed_on() -> None:
    class Strange(dict[str, int]):
        def get(self, *_: Any) -> Any:
            raise LookupError("the app's")

    anything = [Parameter("kwargs", Parameter.VAR_KEYWORD)]
    assert flattening(FLATTEN)(anything, (), Strange(a=1)) == ["a", 1]


@given(st.lists(values, max_size=3), st.dictionaries(st.sampled_from(NAMES), values, max_size=3))
def test_the_header_of_a_task_stays_a_keyword_for_who_has_nothing_of_ours(
    args: list[Any], kwargs: dict[str, Any]
) -> None:
    anything = [Parameter("args", Parameter.VAR_POSITIONAL), Parameter("kwargs", Parameter.VAR_KEYWORD)]
    wire = 0, None
    flat = flattening(FLATTEN)(anything, tuple(args), {**kwargs, HEADER: wire})
    assert RECOVER(flat) == (args, {**kwargs, HEADER: wire})


@given(
    st.text(max_size=9).filter(lambda text: " " not in text).map(lambda text: f"app:{text}"),
    st.none() | st.integers(0, 9),
    st.builds(Header, st.just("driver"), *[st.integers(0, 2**40)] * 4, st.booleans()),
    st.none() | st.text(min_size=1, max_size=9),
)
def test_a_header_is_read_as_it_was_packed(stamp: str, results: int | None, header: Header, group: str | None) -> None:
    assert unpacked(packed(stamp, results, header, group)) == (stamp, results, header, group)


@pytest.fixture
def restored() -> Iterator[None]:
    shape.restore()  # an object of a watched class that another test has made leaves something behind
    yield
    shape.restore()
    assert (signature.flatten_args, signature.recover_args, signature.validate_args) == (FLATTEN, RECOVER, VALIDATE)


def refused(args: tuple[int, ...], kwargs: dict[str, Any]) -> list[tuple[str, str]]:
    """Where an error of arguments that do not fit has come from, and its words."""
    try:
        signature.flatten_args([Parameter("a", Parameter.POSITIONAL_OR_KEYWORD)], args, kwargs)
    except TypeError as error:
        frames = [(frame.filename, frame.name) for frame in traceback.extract_tb(error.__traceback__)]
        return [*frames, ("", str(error))]
    raise AssertionError("they fit")


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("args", [(), (1, 2)])
def test_where_arguments_do_not_fit_the_traceback_is_rays(args: tuple[int, ...]) -> None:
    plain = refused(args, {})
    attaching.replace_ray()
    assert refused(args, {}) == refused(args, {HEADER: WIRE}) == plain


def test_a_fault_of_ours_leaves_the_question_to_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> bool:
        raise LookupError("ours")

    monkeypatch.setattr(headers, "_takes", fail)
    parameters = [Parameter("a", Parameter.POSITIONAL_OR_KEYWORD)]
    with lone_process() as process:
        for args in ((1,), (1, 2)):
            process.is_closed = False
            assert outcome(validating(VALIDATE), parameters, args, {}) == outcome(VALIDATE, parameters, args, {})
            assert process.is_closed


class Account:
    def __init__(self, opening: int = 0) -> None:
        self.balance = opening

    def deposit(self, amount: int) -> int:
        self.balance += amount
        return self.balance


@pytest.mark.usefixtures("restored")
def test_an_actor_takes_headers_where_no_hook_of_workers_has_run() -> None:
    arriving = cloudpickle.dumps(calls.watched_class(Account))
    assert signature.recover_args is RECOVER, "this process makes classes, and runs no actor of them"
    account = cloudpickle.loads(arriving)(5)
    args, kwargs = signature.recover_args([MARK + WIRE, 2])
    assert kwargs == {HEADER: WIRE}
    execute = FunctionActorManager._make_actor_method_executor(None, "deposit", Account.deposit)  # type: ignore[arg-type]
    assert execute(account, *args, **kwargs) == 7
    assert (signature.flatten_args, signature.validate_args) == (FLATTEN, VALIDATE), "it is not watched"


@pytest.mark.usefixtures("restored")
def test_an_actor_takes_headers_where_nothing_else_of_ours_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray_snapshot.instrument.hooks.attaching", None)
    cloudpickle.loads(cloudpickle.dumps(calls.watched_class(Account)))
    assert signature.recover_args([MARK + WIRE]) == ([], {HEADER: WIRE})


@pytest.mark.usefixtures("restored")
def test_a_process_that_is_watched_no_more_takes_headers_that_are_on_their_way() -> None:
    attaching.replace_ray()
    attaching.detach()
    assert signature.flatten_args is FLATTEN
    assert signature.recover_args([MARK + WIRE]) == ([], {HEADER: WIRE})
    attaching.replace_ray()
    assert signature.recover_args([MARK + WIRE]) == ([], {HEADER: WIRE})
