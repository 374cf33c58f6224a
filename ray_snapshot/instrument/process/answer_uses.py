"""What a program does with an answer: by the source around the place where it is read. Imports nothing of Ray.

A loop that asks is bounded if something else ends it, too: a counter, a clock, the end of a list.
"""

from __future__ import annotations

import ast
import itertools
import linecache
import re
from collections.abc import Iterator
from enum import Enum
from functools import lru_cache
from types import CodeType, FrameType
from typing import NamedTuple

from ray_snapshot.runtime.here import USERS, outward, rank_of


class Use(Enum):
    """What becomes of an answer."""

    DROPPED = "dropped"
    """Nothing: the call is made for what it does."""
    RETURNED = "returned"
    """The function that asks returns it, or what it comes to."""
    ONCE = "once"
    """It is asked for in no loop."""
    BOUNDED = "bounded"
    """A loop asks for it, and ends by itself as well."""
    OPEN = "open"
    """A loop asks for it in which nothing else is seen that ends it."""
    UNTIL = "until"
    """So, and the loop ends with another answer alone, and does nothing but ask, sleep and say so."""
    UNKNOWN = "unknown"
    """Its source cannot be read."""


class Asking(NamedTuple):
    """Where an answer is read."""

    call_site: str
    """ "file:line"."""
    use: Use


_HELPERS = 5
"""So many functions between the loop and the call are looked through."""


def asking(frame: FrameType | None) -> Asking | None:
    """Where the program asks whose frame this is, or is called by; None if no line of the user's is there."""
    own = (one for one in outward(frame) if rank_of(one.f_code.co_filename) == USERS)
    found, is_answer = None, True
    for one in itertools.islice(own, _HELPERS):
        site, use = f"{one.f_code.co_filename}:{one.f_lineno}", use_at(one.f_code, one.f_lasti, is_answer)
        if use not in (Use.RETURNED, Use.ONCE):
            return Asking(site, use)
        found, is_answer = found or Asking(site, Use.ONCE), is_answer and use is Use.RETURNED
    return found


@lru_cache(1024)
def use_at(code: CodeType, instruction: int, is_answer: bool = True) -> Use:
    """Of what the expression has come to which this instruction is in; `is_answer`: that is the answer."""
    try:
        line, last_line, column, last_column = next(itertools.islice(code.co_positions(), instruction // 2, None))
        if line is None or last_line is None or column is None or last_column is None:
            return Use.UNKNOWN
        tree, codes = _read(code.co_filename)
        use = use_in(tree, (line, column, last_line, last_column), is_answer=is_answer)
        return Use.OPEN if use is Use.UNTIL and code not in codes else use
    except Exception:  # a source of whatever form; the answer is of no importance to the app
        return Use.UNKNOWN


def tree_of(code: CodeType) -> ast.Module:
    """The source of the file that this code is of; nothing if the file has another one by now."""
    tree, codes = _read(code.co_filename)
    return tree if code in codes else ast.Module([], [])


@lru_cache(8)
def _read(file: str) -> tuple[ast.Module, frozenset[CodeType]]:
    source = "".join(linecache.getlines(file))
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            child.parent = node  # type: ignore[attr-defined]
    return tree, frozenset(_codes(compile(source, file, "exec", dont_inherit=True)))


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for item in code.co_consts:
        if isinstance(item, CodeType):
            yield from _codes(item)


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_WHOLE = (ast.Expr, ast.Await, ast.NamedExpr)


def use_in(tree: ast.Module, place: tuple[int, int, int, int], *, is_answer: bool = True) -> Use:
    """Of the call or `await` at (line, column, last line, last column); columns count bytes."""
    node = next(
        (one for one in ast.walk(tree) if isinstance(one, (ast.Call, ast.Await)) and _place(one) == place), None
    )
    if node is None:
        return Use.UNKNOWN
    above = list(_above(node))
    statement = next(one for one in (node, *above) if isinstance(one, ast.stmt))
    is_whole = isinstance(statement, ast.Expr) and all(
        isinstance(one, _WHOLE) for one in above[: above.index(statement)]
    )
    if is_whole and is_answer:
        return Use.DROPPED
    inside = above[: next((at for at, one in enumerate(above) if isinstance(one, _FUNCTIONS)), len(above))]
    if len(inside) < len(above) and (isinstance(above[len(inside)], ast.Lambda) or isinstance(statement, ast.Return)):
        return Use.RETURNED
    loops = [one for one in inside if isinstance(one, (ast.While, ast.For, ast.AsyncFor)) and not _is_before(one, node)]
    if not loops:
        return Use.ONCE
    names = _names_of(statement, node)
    endless = [one for one in loops if not _ends_by_itself(one, node, names)]
    if not endless:
        return Use.BOUNDED
    is_until = is_answer and len(loops) == 1 and _ends_by_answer(endless[0], node, names)
    return Use.UNTIL if is_until else Use.OPEN


def _place(node: ast.expr) -> tuple[int, int, int | None, int | None]:
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def _above(node: ast.AST) -> Iterator[ast.AST]:
    while (parent := getattr(node, "parent", None)) is not None:
        yield parent
        node = parent


def _is_before(loop: ast.AST, node: ast.AST) -> bool:
    """Whether the call is what a `for` goes through: evaluated once."""
    return isinstance(loop, (ast.For, ast.AsyncFor)) and any(one is node for one in ast.walk(loop.iter))


def _names_of(statement: ast.AST, node: ast.AST) -> set[str]:
    """What the answer, and what is made of it in its own statement, is called."""
    targets: list[ast.AST] = []
    if isinstance(statement, ast.Assign):
        targets += statement.targets
    elif isinstance(statement, (ast.AnnAssign, ast.AugAssign)):
        targets.append(statement.target)
    targets += [one.target for one in _above(node) if isinstance(one, ast.NamedExpr)]
    return {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}


def _is_of_answer(test: ast.AST, node: ast.AST, names: set[str]) -> bool:
    return any(one is node or (isinstance(one, ast.Name) and one.id in names) for one in ast.walk(test))


_ENDS = (ast.Break, ast.Return, ast.Raise)


def _ends(loop: ast.AST) -> Iterator[tuple[list[ast.AST], ast.AST]]:
    """The tests behind which a loop is left, and how."""
    for one in ast.walk(loop):
        if isinstance(one, _ENDS):
            around = [*_above(one)]
            if loop in around:
                inner = around[: around.index(loop)]
                is_own = not any(isinstance(each, (*_FUNCTIONS, ast.ClassDef)) for each in inner)
                is_left = not (isinstance(one, ast.Break) and any(isinstance(each, _LOOPS) for each in inner))
                if is_own and is_left:
                    yield [each.test for each in inner if isinstance(each, ast.If)], one


_LOOPS = (ast.While, ast.For, ast.AsyncFor)
_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def _ends_by_itself(loop: ast.AST, node: ast.AST, names: set[str]) -> bool:
    """Whether something ends it that counts, or that is asked, beside the answer."""
    if isinstance(loop, (ast.For, ast.AsyncFor)):
        source = ast.unparse(loop.iter)
        return not source.startswith(("itertools.count(", "count(", "itertools.repeat(", "repeat(", "iter("))
    assert isinstance(loop, ast.While)
    tests = [loop.test, *(test for tests, _ in _ends(loop) for test in tests)]
    counted = {
        one.target.id for one in ast.walk(loop) if isinstance(one, ast.AugAssign) and isinstance(one.target, ast.Name)
    }
    others = (part for test in tests for part in _parts(test) if not _is_of_answer(part, node, names))
    return any(_counts(part, counted) for part in others)


def _parts(test: ast.AST) -> Iterator[ast.AST]:
    """What `and` and `or` join."""
    if isinstance(test, ast.BoolOp):
        for value in test.values:
            yield from _parts(value)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _parts(test.operand)
    else:
        yield test


def _counts(test: ast.AST, counted: set[str]) -> bool:
    """Whether it compares by order, as clocks and counters are, or is a number that is counted down."""
    is_order = any(isinstance(op, _ORDERS) for one in ast.walk(test) if isinstance(one, ast.Compare) for op in one.ops)
    return is_order or (isinstance(test, ast.Name) and test.id in counted)


def _ends_by_answer(loop: ast.AST, node: ast.AST, names: set[str]) -> bool:
    """Whether nothing but the answer is asked, another one ends the loop, and it does nothing else meanwhile.

    Then the caller does not change while it asks. A loop that is left by an error alone waits for no end.
    """
    assert isinstance(loop, ast.While)
    ends = [*_ends(loop)]
    if any(isinstance(one, ast.Raise) or not tests for tests, one in ends):
        return False
    if any(not _is_of_answer(test, node, names) for tests, _ in ends for test in tests):
        return False
    is_endless = isinstance(loop.test, ast.Constant) and bool(loop.test.value)
    if loop.orelse or not (bool(ends) if is_endless else _is_of_answer(loop.test, node, names)):
        return False
    left = [
        part
        for one in ast.walk(loop)
        if isinstance(one, ast.If) and isinstance(one.body[-1], _ENDS)
        for part in one.body
    ]
    skipped = {id(one) for part in [node, *left] for one in ast.walk(part)}
    inside = (one for one in ast.walk(loop) if id(one) not in skipped and one is not loop)
    return all(_is_idle(one, names) for one in inside) and all(_asks(one, node) for one in ast.walk(node))


def _asks(part: ast.AST, node: ast.AST) -> bool:
    """Whether a part of the call that asks does nothing but that."""
    if part is node:
        return True
    if isinstance(part, ast.Call):
        return ast.unparse(part.func).rpartition(".")[2] in ("get", "remote", "options")
    return isinstance(part, _IDLE)


_IDLE = (
    *(
        ast.If,
        ast.Pass,
        ast.Continue,
        ast.Expr,
        ast.Compare,
        ast.BoolOp,
        ast.UnaryOp,
        ast.BinOp,
        ast.Constant,
        ast.Name,
    ),
    *(
        ast.Attribute,
        ast.Subscript,
        ast.JoinedStr,
        ast.FormattedValue,
        ast.GeneratorExp,
        ast.ListComp,
        ast.comprehension,
    ),
    *(ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop, ast.keyword, ast.List, ast.Tuple),
)
_SAYS = re.compile(r"print|((time|asyncio)\.)?sleep|[\w.]*log[\w.]*\.(debug|info|warning)", re.IGNORECASE)
_COUNTS = ("all", "any", "len", "bool", "min", "max", "sum")


def _is_idle(node: ast.AST, names: set[str]) -> bool:
    """Whether it changes nothing: neither the caller, but for the answer, nor anything else."""
    if isinstance(node, ast.Await):
        return isinstance(node.value, ast.Call) and ast.unparse(node.value.func) in ("sleep", "asyncio.sleep")
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func)
        return name in _COUNTS or _SAYS.fullmatch(name) is not None
    if isinstance(node, ast.Assign):
        return all(isinstance(one, ast.Name) and one.id in names for one in node.targets)
    if isinstance(node, ast.NamedExpr):
        return node.target.id in names
    return isinstance(node, _IDLE)
