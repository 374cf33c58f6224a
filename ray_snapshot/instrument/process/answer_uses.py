"""What a program does with an answer: by the source around the place where it is read. Imports nothing of Ray.

A loop that asks is bounded if something else ends it, too: a clock, a counter of its rounds, the end of a list. A counter that
only some rounds change is none: it counts what comes of the answers.
"""

from __future__ import annotations

import ast
import itertools
import linecache
import re
import warnings
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import lru_cache
from types import CodeType, FrameType
from typing import NamedTuple

from ray_snapshot.runtime.here import PACKAGES, USERS, rank_of


class Use(Enum):
    """What becomes of an answer."""

    DROPPED = "dropped"
    """Nothing: the call is made for what it does."""
    RETURNED = "returned"
    """The function that asks does nothing else, and returns it."""
    PART = "part"
    """The function that asks returns it, or what it comes to, and may do more."""
    ONCE = "once"
    """It is asked for in no loop."""
    BOUNDED = "bounded"
    """A loop asks for it, and ends by itself as well."""
    WATCHED = "watched"
    """A loop asks for it that only an error ends."""
    OPEN = "open"
    """A loop asks for it in which nothing else is seen that ends it."""
    UNTIL = "until"
    """A loop asks for it that ends with another answer alone, and does nothing but ask, sleep and say so."""
    UNKNOWN = "unknown"
    """Its source cannot be read."""


class Asking(NamedTuple):
    """Where an answer is read."""

    call_site: str
    """ "file:line"."""
    use: Use


Chain = tuple[tuple[CodeType, int], ...]
"""The functions that lead to a call, the innermost first, each with the instruction that it is at."""

AWAIT, WAIT, SLEEP = "await", "wait", "sleep"


class Place(NamedTuple):
    """Where it is asked."""

    chain: Chain
    function: str = ""
    """Ray's that has not given what it is asked for; "": any that has. For a wait with a timeout outside of Ray: `AWAIT` if
    that raises, `WAIT`, or `SLEEP`."""
    is_idle: bool = False
    """Whether its loop may do nothing else."""


TO_CALL = "to call"
"""How Ray is asked for room in the queue of an actor that takes a bounded number of calls (`max_pending_calls`)."""

_RAISE = ("ray.get", AWAIT, TO_CALL)
"""How the functions begin that raise if they cannot give it."""

_HELPERS = 5
"""So many functions between the loop and the call are looked through."""


def chain_of(frames: Iterable[FrameType]) -> Chain:
    """The program's of these, the innermost first; a library's loop is nothing to its caller, nor a caller's to a library."""
    ranked = ((rank_of(one.f_code.co_filename), one) for one in frames)
    others = list(itertools.islice((each for each in ranked if each[0] in (USERS, PACKAGES)), _HELPERS))
    own = itertools.takewhile(lambda each: each[0] == others[0][0], others)
    return tuple((one.f_code, one.f_lasti) for _, one in own)


def asking(place: Place) -> Asking:
    """Where the loop asks, as far as one is seen, and what it does; reads files."""
    innermost, passed, (chain, function, is_idle) = Asking("", Use.UNKNOWN), Use.RETURNED, place
    for code, instruction in chain:
        line, use = _use_at(code, instruction, passed, function, is_idle)
        use = Use.ONCE if use is Use.UNKNOWN and (is_idle or function == SLEEP) else use
        function = "" if function.startswith(_RAISE) and use is not Use.RETURNED else function
        site = Asking(f"{code.co_filename}:{line}", use)
        if use not in (Use.RETURNED, Use.PART, Use.ONCE):
            return site
        innermost = innermost if innermost.call_site else site._replace(use=Use.ONCE)
        passed = max(passed, use, key=_PASSED.index)
    return innermost


_PASSED = [Use.RETURNED, Use.PART, Use.ONCE]


def _use_at(code: CodeType, instruction: int, passed: Use, function: str, is_idle: bool) -> tuple[int, Use]:
    """The line, and the use of the expression that this instruction is in; `passed`: what of the answer that is."""
    line, last_line, column, last_column = next(itertools.islice(code.co_positions(), instruction // 2, None))
    try:
        if line is None or last_line is None or column is None or last_column is None:
            return line or 0, Use.UNKNOWN
        use = use_in(_tree(code.co_filename), (line, column, last_line, last_column), passed, function, is_idle)
        is_other = use is Use.UNTIL and code not in _codes(code.co_filename)
        return line, Use.OPEN if is_other else use
    except Exception:  # a source of whatever form; it is of no importance to the app
        return line or 0, Use.UNKNOWN


def tree_of(code: CodeType) -> ast.Module:
    """The source of the file that this code is of; nothing if the file has another one by now."""
    return _tree(code.co_filename) if code in _codes(code.co_filename) else ast.Module([], [])


@lru_cache(8)
def _tree(file: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse("".join(linecache.getlines(file)))
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            child.parent = node  # type: ignore[attr-defined]
    return tree


@lru_cache(8)
def _codes(file: str) -> frozenset[CodeType]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = compile("".join(linecache.getlines(file)), file, "exec", dont_inherit=True)
    codes, to_look = {whole}, [whole]
    while to_look:
        more = [item for item in to_look.pop().co_consts if isinstance(item, CodeType)]
        codes.update(more)
        to_look += more
    return frozenset(codes)


def nodes(names: str) -> tuple[type[ast.AST], ...]:
    """The kinds of nodes with these names."""
    return tuple(getattr(ast, name) for name in names.split())


_FUNCTIONS, _LOOPS = nodes("FunctionDef AsyncFunctionDef Lambda"), nodes("While For AsyncFor")
_WHOLE, _ENDS, _ORDERS = nodes("Await NamedExpr"), nodes("Break Return Raise"), nodes("Lt LtE Gt GtE")


def use_in(
    tree: ast.Module,
    place: tuple[int, int, int, int],
    passed: Use = Use.RETURNED,
    function: str = "",
    is_idle: bool = False,
) -> Use:
    """Of the call or `await` at (line, column, last line, last column); columns count bytes. `function`, `is_idle`: see
    `Place`."""
    calls = (one for one in ast.walk(tree) if isinstance(one, (ast.Call, ast.Await)))
    node = next((one for one in calls if _place(one) == place), None)
    if node is None:
        return Use.UNKNOWN
    above = list(_above(node))
    at, statement = next((at, one) for at, one in enumerate(above) if isinstance(one, (ast.stmt, ast.Lambda)))
    if function.startswith(_RAISE):
        inside = itertools.takewhile(lambda one: not isinstance(one, _FUNCTIONS), above[at + 1 :])
        caught = next((one for one in inside if _catches(one, [statement, *above])), None)
        if caught is None:
            return Use.RETURNED
        handlers = getattr(caught, "handlers", ())
        if handlers and all(isinstance(one.body[-1], _ENDS) for one in handlers):
            return Use.ONCE
        above = [caught, *_above(caught)]
    elif (
        passed is not Use.ONCE
        and function not in (WAIT, SLEEP)
        and isinstance(statement, ast.Expr)
        and all(isinstance(one, _WHOLE) for one in above[:at])
    ):
        return Use.DROPPED
    elif isinstance(statement, (ast.Return, ast.Lambda)):
        outer = next((one for one in above if isinstance(one, _FUNCTIONS)), None)
        body = getattr(outer, "body", None)
        is_all = node in (body, statement.value) if isinstance(statement, ast.Return) else node is body
        return Use.RETURNED if is_all and body in (node, [statement]) else Use.PART
    inside = itertools.takewhile(lambda one: not isinstance(one, _FUNCTIONS), above)
    loops = [one for one in inside if isinstance(one, _LOOPS) and not _is_before(one, node)]
    endless = [one for one in loops if not _ends_by_itself(one, node, statement, function)]
    if not endless:
        return Use.BOUNDED if loops else Use.ONCE
    is_endless = function == SLEEP and _ends_by_errors(endless[0])
    has_to_look = is_idle or function == SLEEP
    if is_endless or (has_to_look and not _only_looks(endless[0], node, statement, function, is_idle)):
        return Use.ONCE  # it waits for nothing, or works between
    is_until = not function and passed is Use.RETURNED and len(loops) == 1
    if is_until and _ends_by_answer(endless[0], node, statement):
        return Use.UNTIL
    return Use.WATCHED if all(map(_ends_by_errors, endless)) else Use.OPEN


def _place(node: ast.expr) -> tuple[int, int, int | None, int | None]:
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def _above(node: ast.AST) -> Iterator[ast.AST]:
    while (parent := getattr(node, "parent", None)) is not None:
        yield parent
        node = parent


def _is_before(loop: ast.AST, node: ast.AST) -> bool:
    """Whether the call is what a `for` goes through: evaluated once."""
    return isinstance(loop, (ast.For, ast.AsyncFor)) and any(one is node for one in ast.walk(loop.iter))


def _ends(loop: ast.AST) -> Iterator[tuple[list[ast.expr], ast.AST]]:
    """The tests behind which a loop is left, and how."""
    for one in ast.walk(loop):
        if isinstance(one, _ENDS):
            inner = [*itertools.takewhile(lambda each: each is not loop, _above(one))]
            is_own = not any(isinstance(each, (*_FUNCTIONS, ast.ClassDef)) for each in inner)
            if is_own and not (isinstance(one, ast.Break) and any(isinstance(each, _LOOPS) for each in inner)):
                yield [each.test for each in inner if isinstance(each, ast.If)], one


def _ends_by_errors(loop: ast.AST) -> bool:
    """Whether nothing but an error ends a loop that does not end by itself."""
    is_endless = not isinstance(loop, ast.While) or ast.unparse(loop.test) in ("True", "1")
    return is_endless and all(isinstance(one, ast.Raise) for _, one in _ends(loop))


_ENDLESS = re.compile(r"(itertools\.)?(count|cycle|repeat)\(|iter\(")


def _ends_by_itself(loop: ast.AST, node: ast.AST, statement: ast.AST, function: str = "") -> bool:
    """Whether a clock or a counter of its rounds ends it, or the end of what it goes through."""
    if not isinstance(loop, ast.While):
        return _ENDLESS.match(ast.unparse(loop.iter)) is None  # type: ignore[attr-defined]
    counted, of_replies = set[str](), _targets(statement) if function in ("ray.wait", WAIT) else set()
    for one in itertools.takewhile(lambda one: not _may_skip(one), _round(loop.body, statement, function)):
        if isinstance(one, (ast.Assign, ast.AugAssign)) and one is not statement:
            is_counter = of_replies.isdisjoint(part.id for part in ast.walk(one.value) if isinstance(part, ast.Name))
            (counted if is_counter else of_replies).update(_targets(one))
    tests = [loop.test, *(test for tests, _ in _ends(loop) for test in tests)]
    parts = [part for test in tests for part in ast.walk(test)]
    return any(isinstance(part, ast.Compare) and _is_bound(part, node, counted) for part in parts) or any(
        isinstance(part, ast.Name) and part.id in counted and not isinstance(part.parent, ast.Compare)  # type: ignore[attr-defined]
        for part in parts
    )


def _targets(statement: ast.AST) -> set[str]:
    """What a statement assigns to."""
    targets = getattr(statement, "targets", None) or [getattr(statement, "target", ast.Tuple([]))]
    return {ast.unparse(part) for one in targets for part in (one.elts if isinstance(one, ast.Tuple) else [one])}


def _round(statements: list[ast.stmt], statement: ast.AST, function: str) -> Iterator[ast.stmt]:
    """The statements of a round in their order; where `statement` raises, those before it, and what handles the error."""
    for one in statements:
        if not isinstance(one, (ast.Try, ast.With, ast.AsyncWith)):
            yield one
            continue
        is_left = function.startswith(_RAISE) and _catches(one, [statement, *_above(statement)])
        body = itertools.takewhile(lambda part: not any(each is statement for each in ast.walk(part)), one.body)
        yield from _round(list(body) if is_left else one.body, statement, function)
        rest = [part for each in one.handlers for part in each.body] if is_left and isinstance(one, ast.Try) else []
        rest += [*one.finalbody, *([] if is_left else one.orelse)] if isinstance(one, ast.Try) else []
        yield from _round(rest, statement, function)


def _catches(one: ast.AST, inside: list[ast.AST]) -> bool:
    """Whether it goes on behind an error of what is, or is in, one of these, `inside` being parts in parts."""
    if isinstance(one, (ast.With, ast.AsyncWith)):
        return any(part is one for part in inside) and any("suppress(" in ast.unparse(item) for item in one.items)
    return isinstance(one, ast.Try) and bool(one.handlers) and any(part in inside for part in one.body)


def _may_skip(statement: ast.AST) -> bool:
    """Whether what stands behind it is not for every round."""
    return any(isinstance(one, ast.Continue) for one in ast.walk(statement))


def _is_bound(test: ast.Compare, node: ast.AST, counted: set[str]) -> bool:
    """Whether it compares by order a clock, or what each round changes."""
    parts = [*ast.walk(test)]
    if node in parts or not any(isinstance(one, _ORDERS) for one in test.ops):
        return False
    calls = (ast.unparse(one.func) for one in parts if isinstance(one, ast.Call))
    return any(name != "len" for name in calls) or any(
        isinstance(one, (ast.Name, ast.Attribute)) and ast.unparse(one) in counted for one in parts
    )


_TESTS = nodes("Name Constant Compare BoolOp UnaryOp NamedExpr GeneratorExp ListComp comprehension expr_context")
_TESTS += nodes("unaryop cmpop boolop")
_IDLE = nodes("If Pass Continue Expr Name Constant JoinedStr FormattedValue expr_context")
_SAYS = re.compile(r"print|(time|asyncio)\.sleep|_?(log|logger|logging)\.(debug|info|warning)", re.IGNORECASE)
_LOOKS = re.compile(
    r"(^|\.)(len|all|any|poll|main_thread|is_set|is_alive|done|empty|full|qsize|exists|get|time|monotonic|perf_counter)$"
)


def _ends_by_answer(loop: ast.AST, node: ast.AST, statement: ast.AST) -> bool:
    """Whether another answer alone ends it, not in an error, and it does nothing meanwhile but ask, sleep and say so.

    So the caller cannot change while it asks: all that the tests have are answers and constants.
    """
    if not isinstance(loop, ast.While) or loop.orelse or not _asks(node):
        return False
    ends, names = [*_ends(loop)], set[str]()
    if isinstance(statement, ast.Assign):
        if statement.value is not node or not all(isinstance(one, ast.Name) for one in statement.targets):
            return False
        names = {ast.unparse(one) for one in statement.targets}
    names |= {one.target.id for one in _above(node) if isinstance(one, ast.NamedExpr) and one.value is node}
    if any(isinstance(one, ast.Raise) or not tests for tests, one in ends):
        return False
    is_endless = isinstance(loop.test, ast.Constant) and bool(loop.test.value) and bool(ends)
    tests = [*([] if is_endless else [loop.test]), *(test for tests, _ in ends for test in tests)]
    last = (one for one in ast.walk(loop) if isinstance(one, ast.If) and isinstance(one.body[-1], _ENDS))
    skipped = [node, *tests, *(part for one in last for part in one.body)]
    seen = {id(part) for one in skipped for part in ast.walk(one)} | {id(loop), id(loop.test), id(statement)}
    if isinstance(statement, ast.Assign):
        seen |= {id(part) for target in statement.targets for part in ast.walk(target)}
    return all(_is_of_answer(test, node, names) for test in tests) and all(
        _is_idle(one) for one in ast.walk(loop) if id(one) not in seen
    )


def _only_looks(loop: ast.AST, node: ast.AST, statement: ast.AST, function: str, is_idle: bool) -> bool:
    """Whether a loop that waits in vain does nothing but look, and say so; its tests may call what they like, unless it
    `is_idle`."""
    done: list[ast.AST] = [loop.test] if isinstance(loop, ast.While) else []
    tests = [] if is_idle else [*done, *(test for tests, _ in _ends(loop) for test in tests)]
    seen = {id(part) for test in (node, *tests) for part in ast.walk(test)}
    for one in _round(getattr(loop, "body", []), statement, function):
        done.append(one)
        if isinstance(one, (ast.Continue, *_ENDS)):
            break
    calls = (part for one in done for part in ast.walk(one) if isinstance(part, ast.Call) and id(part) not in seen)
    return all(_SAYS.fullmatch(name) or _LOOKS.search(name) for name in (ast.unparse(one.func) for one in calls))


def _is_of_answer(test: ast.expr, node: ast.AST, names: set[str]) -> bool:
    """Whether a test has nothing but the answer, constants, and functions of these."""
    inside, parts = {id(one) for one in ast.walk(node)}, [*ast.walk(test)]
    others = [one for one in parts if id(one) not in inside]
    bound = {one.id for one in others if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    iterated = {id(one.iter) for one in others if isinstance(one, ast.comprehension)}
    functions = {id(one.func): ast.unparse(one.func) for one in others if isinstance(one, ast.Call)}
    skipped = iterated | functions.keys()
    variables = {one.id for one in others if isinstance(one, ast.Name) and id(one) not in skipped}
    is_plain = all(isinstance(one, (ast.Call, *_TESTS)) for one in others)
    if not is_plain or not variables <= names | bound or not set(functions.values()) <= {"all", "any", "len", "bool"}:
        return False
    return node in parts or any(isinstance(one, ast.Name) and one.id in names for one in parts)


def _asks(node: ast.AST) -> bool:
    """Whether a call asks an actor, or is one of a function that does, and gives it nothing but constants and variables."""
    if isinstance(node, ast.Await):
        return _is_remote(node.value)
    if not isinstance(node, ast.Call) or node.keywords:
        return False
    if ast.unparse(node.func) in ("ray.get", "get"):
        return len(node.args) == 1 and _is_remote(node.args[0])
    return isinstance(node.func, ast.Name) and all(isinstance(one, (ast.Name, ast.Constant)) for one in node.args)


def _is_remote(node: ast.AST) -> bool:
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        return _is_remote(node.elt) and all(isinstance(one.iter, ast.Name) and not one.ifs for one in node.generators)
    if isinstance(node, (ast.List, ast.Tuple)):
        return all(map(_is_remote, node.elts))
    if not isinstance(node, ast.Call) or not re.fullmatch(r"[\w.]+\.\w+\.remote", ast.unparse(node.func)):
        return False
    given = [*node.args, *(one.value for one in node.keywords)]
    return all(isinstance(one, (ast.Name, ast.Constant)) for one in given)


def _is_idle(node: ast.AST) -> bool:
    """Whether it changes nothing."""
    if isinstance(node, (ast.Call, ast.Await)):
        call = node.value if isinstance(node, ast.Await) else node
        return isinstance(call, ast.Call) and _SAYS.fullmatch(ast.unparse(call.func)) is not None
    if isinstance(node, ast.Attribute):  # of what it calls
        parent = node.parent  # type: ignore[attr-defined]
        return isinstance(parent, ast.Call) and parent.func is node
    return isinstance(node, _IDLE)
