"""Methods that depend on their actor's plain attributes alone: what one answers changes by calls of that actor only.

An allow-list: the source of the method, and of those of its own that it calls, has nothing but operations on values of built-in
types; and all that the actor has is of these types, or a handle of an actor. A clock, a file, a lock or a future is neither.
Of the arguments the caller tells that they are of these types (`polls`).
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Mapping
from types import FunctionType
from typing import Any

from ray.actor import ActorHandle

from ray_snapshot.fields import in_class
from ray_snapshot.instrument.process.answer_uses import nodes, tree_of
from ray_snapshot.limits import LIMITS
from ray_snapshot.runtime.here import RAYS, rank_of

_NODES = nodes(
    "Return If For While Assign AugAssign AnnAssign Expr Pass Break Continue BoolOp BinOp UnaryOp Compare IfExp Constant Name"
    " Subscript Slice List Tuple Dict Set ListComp SetComp DictComp GeneratorExp comprehension JoinedStr FormattedValue"
    " NamedExpr Starred keyword expr_context operator unaryop cmpop boolop"
)
_FUNCTIONS = frozenset(
    {"abs", "all", "any", "bool", "dict", "enumerate", "float", "frozenset", "int", "isinstance", "len", "list"}
    | {"max", "min", "range", "reversed", "round", "set", "sorted", "str", "sum", "tuple", "zip"}
)
_ATOMS = (type(None), bool, int, float, str, bytes)
_CONTAINERS = (list, tuple, dict, set, frozenset)


class AskedMethods:
    """Methods of one actor that others call again and again, for as long as makes a poll."""

    def __init__(self) -> None:
        self.since: dict[tuple[str, str], tuple[float, int]] = {}
        """By source and method: when it had called nothing else here, and how many calls had begun by then."""

    def look(self, body: Any, last_calls: Mapping[str, str], begun: int, now: float) -> tuple[str, ...]:
        """A snapshot is recorded; `last_calls`: the latest method of each source. Returns those that are plain."""
        latest = itertools.islice(last_calls.items(), LIMITS.poll_callers)
        self.since = {pair: self.since.get(pair, (now, begun)) for pair in latest}
        often = (
            method
            for (_, method), (at, count) in self.since.items()
            if now - at >= LIMITS.poll_s and begun - count >= LIMITS.poll_rounds
        )
        return tuple(method for method in dict.fromkeys(often) if is_plain(body, method))


def is_plain(body: Any, method: str) -> bool:
    """Whether what a method of this actor answers depends on nothing else. No code of the app's runs."""
    try:
        return _is_plain(body, method)
    except Exception:  # it has no attributes, another thread changes them, or its source is of whatever form
        return False


def _is_plain(body: Any, method: str) -> bool:
    kind, state = type(body), vars(body)
    if in_class(kind, "__getattr__") is not None or any(
        in_class(kind, name) is not in_class(object, name) for name in ("__getattribute__", "__setattr__")
    ):
        return False
    left = [LIMITS.plain_items]
    if not all(type(value) is ActorHandle or _is_of_built_ins(value, left) for value in state.values()):
        return False
    seen, to_look = set[str](), [method]
    while to_look:
        if (name := to_look.pop()) in seen:
            continue
        seen.add(name)
        function = _own(in_class(kind, name))
        if type(function) is not FunctionType or name in state or (calls := _calls_of(function, kind, state)) is None:
            return False
        to_look += calls
    return True


def _own(member: Any) -> Any:
    """The function that Ray has wrapped in one of its own, as it does with each method of an actor."""
    is_rays = type(member) is FunctionType and rank_of(member.__code__.co_filename) == RAYS
    return vars(member).get("__wrapped__", member) if is_rays else member


def _is_of_built_ins(value: Any, left: list[int]) -> bool:
    """Whether it is, and all that is in it; no more than so many items are looked at."""
    left[0] -= 1
    if left[0] < 0 or type(value) in _ATOMS:
        return left[0] >= 0
    if type(value) not in _CONTAINERS:
        return False
    items = (*value, *value.values()) if type(value) is dict else value
    return all(_is_of_built_ins(item, left) for item in items)


def _calls_of(function: FunctionType, kind: type, state: dict[str, Any]) -> list[str] | None:
    """The methods of its own object that a function calls; None if it does anything that is not in the list."""
    node = _definition(function)
    given = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    if node is None or not node.args.args or any(type(value) not in _ATOMS for value in given):
        return None
    own, inside = node.args.args[0].arg, [part for statement in node.body for part in ast.walk(statement)]
    called = [part.func for part in inside if isinstance(part, ast.Call)]
    methods = {id(one): one for one in called if isinstance(one, ast.Attribute)}  # of built-in types, or its own
    functions = {id(target) for target in called}
    names = {part.id for part in inside if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    names |= {*function.__code__.co_varnames}
    bases = {id(part.value) for part in inside if isinstance(part, ast.Attribute)}
    for part in inside:
        if _is_name(part, own) and id(part) not in bases:
            return None  # it may be asked itself, or have another name
        if isinstance(part, ast.Name):
            is_good = _is_known(part.id, names, function.__globals__, is_called=id(part) in functions)
        elif isinstance(part, ast.Attribute):
            is_good = id(part) in methods or (_is_name(part.value, own) and _is_value(part.attr, kind, state))
        elif isinstance(part, ast.Call):
            is_good = isinstance(part.func, (ast.Name, ast.Attribute))
        else:
            is_good = isinstance(part, _NODES)
        if not is_good:
            return None
    return [target.attr for target in methods.values() if _is_name(target.value, own)]


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _is_known(name: str, own: set[str], outside: dict[str, Any], *, is_called: bool) -> bool:
    """A function of the list, a variable of its own, or a constant of its module."""
    if is_called:
        return name in _FUNCTIONS and name not in own and name not in outside
    return name in own or (name in outside and type(outside[name]) in _ATOMS) or name in _FUNCTIONS - outside.keys()


def _is_value(name: str, kind: type, state: dict[str, Any]) -> bool:
    """Whether an attribute is the actor's own, or a constant of its class."""
    shared = in_class(kind, name)
    return type(shared) in _ATOMS if name not in state else not hasattr(type(shared), "__set__")


def _definition(function: FunctionType) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    code, kinds = function.__code__, (ast.FunctionDef, ast.AsyncFunctionDef)
    inside = (node for node in ast.walk(tree_of(code)) if isinstance(node, kinds))
    return next((one for one in inside if (one.name, one.lineno) == (code.co_name, code.co_firstlineno)), None)
