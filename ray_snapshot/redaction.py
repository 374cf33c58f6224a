"""What must never reach the disk: the values of fields with certain names, and secrets, wherever their text turns up.

`redact("password")` names fields; whatever is recorded under such a name (a field, a key, a parameter of a method, what a
method of that name is given or returns, however deep) is written as `{"$redacted": name}`. A value that was met under such a
name, or in a pydantic secret, is remembered in this process when it is sent or arrives, and taken out of every text that is
recorded here afterwards, the texts of errors too, also where it stands there as `repr` or JSON write it; a number is taken out
wherever the same number stands. Where positional arguments go to a method whose parameters this process does not know, all
of them are taken out. Only the standard library is imported.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import fractions
import inspect
import itertools
import json
import pathlib
import re
import sys
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from ray_snapshot.errors import SettingError
from ray_snapshot.fields import fields_of, in_class

REPLACEMENT = "[redacted]"

LEAST_CHARACTERS = 4
"""Shorter texts, and numbers of fewer digits, are taken out under their names only: they would be found everywhere."""

LONGEST_NUMBER = 2_000
"""The most bits of a secret number whose text is looked for, too; of a longer one only the number is."""

LONGEST_WHOLE = 4_000
"""Of a longer secret, a text or bytes, only a head of this length is looked for; it is taken out with all that
follows."""

MOST_SECRETS = 100_000
MOST_HELD = 16_000_000
"""The most forms of secrets, and the most bytes of memory for them, in a process; once there are more, it warns."""

MOST_LOOKED_FOR = 200
LONGEST_PATTERN = 20_000
"""The most secrets, and characters of them, in `pattern`; if there are more, every text counts as one that may have a
secret."""

UNKNOWN = "argument"
"""What stands for the name of a parameter that this process does not know."""

MOST_DEPTH = 200
MOST_MET = 10_000
"""So many values are looked at in an argument that arrives, and in a secret."""

_LISTS = (list, tuple, set, frozenset, deque)

_WRITTEN_AS_TEXT = (
    decimal.Decimal, fractions.Fraction, uuid.UUID, pathlib.PurePath, datetime.date, datetime.time, datetime.timedelta,
)  # fmt: skip


_AS_NUMBERS = (decimal.Decimal, fractions.Fraction, datetime.time, datetime.timedelta)

_TAG_NAMES = (
    "actor array bytes complex cut cycle date datetime datetime64 decimal deque dict enum error float fraction int kwargs"
    " machine name objectref path pattern range redacted set time timedelta timedelta64 truncated tuple type unreadable uuid"
)
_TAGS = frozenset(f"${name}" for name in _TAG_NAMES.split())
"""The keys that say what a recorded value is (`docs/reference/json.md`): they are of our making, and hold no secret."""


class Parameters(NamedTuple):
    """The parameters of a method; `rest` and `keywords` take what has no name of its own, if the method has them."""

    positional: tuple[str, ...]
    named: frozenset[str] = frozenset()
    rest: str | None = None
    keywords: str | None = None

    def at(self, position: int) -> str | None:
        """The name under which a positional argument arrives."""
        return self.positional[position] if position < len(self.positional) else self.rest


_names: frozenset[str] = frozenset()
_texts: dict[str, bool] = {}
"""Secrets, in every form in which they may stand in a text; whether it is the head of a long one."""
_numbers: dict[int | float, bool] = {}
_bytes: dict[bytes, bool] = {}
_held = 0
_is_full = False
_parameters: dict[str, list[Parameters]] = {}
"""By name: the parameters of the methods, or of the method of the ports, of that name."""

is_active = False
"""Whether there is anything to take out."""

version = 0
"""Another one whenever there is more to take out: what was written before is to be written anew."""


def redact(*names: str) -> None:
    """Never write the values of fields, keys and parameters of these names, in any case, with or without `_` in front.

    Call it before the system is made: it goes with every machine from then on. Raises `SettingError` for what is no name.
    """
    global _names, is_active, version
    for name in names:
        if not isinstance(name, str) or not name.strip("_"):
            raise SettingError(f"redact({name!r}): name fields, like redact('password', 'token')")
    _names |= {_plain(name) for name in names}
    is_active = bool(_names or secret_count())
    version += 1


def names() -> tuple[str, ...]:
    """The names that are redacted in this process, for others to redact them, too."""
    return tuple(sorted(_names))


def forget() -> None:
    """Redact nothing any more; for tests."""
    global _names, is_active, _held, _is_full, version
    _names, is_active, _held, _is_full, version = frozenset(), False, 0, False, version + 1
    for known in (_texts, _numbers, _bytes, _parameters):
        known.clear()


def secret_count() -> int:
    """How many secrets are known; grows when one is met."""
    return len(_texts) + len(_numbers) + len(_bytes)


def _plain(name: str) -> str:
    return name.casefold().strip("_")


def is_redacted(name: Any) -> bool:
    """Whether a field of that name is redacted; `_Account__password` is `password`."""
    if not isinstance(name, str):
        return False
    plain = _plain(str.__str__(name))
    return plain in _names or ("__" in plain and plain.rpartition("__")[2] in _names)


# Secrets


def learn(value: Any) -> None:
    """Remember a secret: its text, or its number, is taken out of what is recorded from now on. Raises nothing."""
    _take_in(value, True)


def _take_in(value: Any, is_secret: bool) -> bool:
    """Learn a secret, or what stands under redacted names in another value; returns whether anything stood there.

    Each object is looked into once, the outer ones first, and at most `MOST_MET` in all: they may go round, or be long.
    """
    todo, seen, left, is_met = deque([(value, is_secret)]), {}, MOST_MET, False
    while todo:
        value, is_secret = todo.popleft()
        try:
            if (id(value), is_secret) in seen or _is_taken_alone(value, is_secret):
                continue
            seen[id(value), is_secret] = value  # kept: no other object shall get its id meanwhile
            parts = _parts(value, is_secret, left)
        except Exception:  # changed by another thread meanwhile, or odd: the others are learned all the same
            continue
        left -= len(parts)
        for name, item in parts:
            is_named = is_redacted(name) or (type(name) is str and name == "_secret_value")
            todo.append((item, is_secret or is_named))
            is_met |= is_named
    return is_met


def _is_taken_alone(value: Any, is_secret: bool) -> bool:
    """Whether a value holds no others; if it is secret, it is remembered. Its type is asked, not the value."""
    kind = type(value)
    if not is_secret or value is None or kind is bool:
        return value is None or issubclass(kind, (str, bytes, int, float))
    if issubclass(kind, (str, bytes, bytearray, memoryview)):
        _remember(str.__str__(value) if issubclass(kind, str) else bytes(value))
    elif issubclass(kind, (int, float)):
        _remember_number(value)
    elif issubclass(kind, _WRITTEN_AS_TEXT):
        texts = {str(value), str(value.isoformat()) if hasattr(value, "isoformat") else str(value)}
        for text in texts if not issubclass(kind, _AS_NUMBERS) else filter(_has_digits, texts):
            _remember(text)
    else:
        return False
    return True


def _parts(value: Any, is_secret: bool, most: int) -> list[tuple[Any, Any]]:
    """The first of what a value holds, with the names of it, if it has names; nothing of a machine's handle."""
    kind = type(value)
    if issubclass(kind, dict):
        if _is_mark(value):
            return []
        blob = dict.get(value, "$bytes") if is_secret else None  # that has been recorded
        return [(None, _decoded(blob))] if isinstance(blob, str) else _first(dict.items(value), most)
    for base in _LISTS:
        if issubclass(kind, base):
            names = in_class(kind, "_fields") if base is tuple else None
            return list(zip(names or itertools.repeat(None), _first(base.__iter__(value), most), strict=False))
    if is_secret and kind is complex:
        return [(None, value.real), (None, value.imag)]
    if is_secret and kind.__module__ == "numpy" and hasattr(value, "tolist"):
        shown = [str(value), value.tolist()] if getattr(value, "ndim", 1) == 0 else value.flat[:most].tolist()
        return [(None, item) for item in shown]
    return [] if _is_handle(value) else _first((fields_of(value) or {}).items(), most)


def _first(items: Iterable[Any], most: int) -> list[Any]:
    return list(itertools.islice(items, most))


def _remember(secret: str | bytes) -> None:
    head, is_cut = secret[:LONGEST_WHOLE], len(secret) > LONGEST_WHOLE
    raw = head if isinstance(head, bytes) else head.encode("utf-8", "surrogatepass")
    if len(secret) < LEAST_CHARACTERS or _bytes.get(raw, -1) >= is_cut or is_redacted(secret) or not _has_room():
        return  # too short, known, or a password that is "password": then the name would be taken out, too
    _hold(_bytes, raw, is_cut)
    text = secret.decode("utf-8", "ignore") if isinstance(secret, bytes) else secret
    is_text = isinstance(secret, str) or text.encode() == secret
    for form in (*(_forms(text[:LONGEST_WHOLE]) if is_text else ()), *_forms(repr(raw)[2:-1])):
        _hold(_texts, form, is_cut or _texts.get(form, False))
    if not is_cut:
        with suppress(ValueError):
            _remember_number(int(text) if text.isdigit() else float(text))


def _has_digits(text: str) -> bool:
    """Whether a number's text is long enough to be looked for; one of noughts alone stands in many others."""
    digits = [*filter(str.isdigit, text)]
    return len(digits) >= LEAST_CHARACTERS and set(digits) != {"0"}


def _hold(known: dict[Any, bool], form: str | bytes | int | float, is_cut: bool) -> None:
    global is_active, _held, version
    is_more = form not in known or known[form] != is_cut
    _held += 0 if form in known else sys.getsizeof(form)
    known[form] = is_cut
    is_active = True
    version += is_more  # behind all of it: what another thread writes meanwhile has the version before


def _has_room() -> bool:
    """Whether this process can look for more secrets; the first time that it cannot, it prints so."""
    global _is_full
    if secret_count() < MOST_SECRETS and _held < MOST_HELD:
        return True
    if not _is_full:
        _is_full = True
        many = f"{secret_count()} forms, {_held} bytes"
        print(
            f"ray-snapshot: redact: this process has met too many secrets to look for more ({many}): those it meets"
            " from now on are taken out under their names only, not where else their text stands",
            file=sys.stderr,
        )
    return False


def _forms(text: str) -> Iterator[str]:
    """A text, and how it looks inside a longer text once `repr` or JSON have written that, also twice in a row."""
    forms = {text}
    if not (text.isascii() and text.isalnum()):
        for _ in range(2):
            forms |= {escaped for form in forms for escaped in _escaped(form)}
    yield from forms


def _escaped(text: str) -> tuple[str, ...]:
    """A text as it looks inside Python's quotes of either kind, and inside JSON with and without non-ASCII
    characters."""
    in_json = json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]
    return repr(text)[1:-1], repr(f'"{text}')[2:-1], *in_json


def _remember_number(value: int | float) -> None:
    value = abs(int(value) if isinstance(value, int) else float(value))
    is_whole, texts = isinstance(value, int) or value.is_integer(), []
    if not is_whole or int(value).bit_length() <= LONGEST_NUMBER:
        texts = [repr(int(value)) if is_whole else repr(value), repr(value)]
        if not _has_digits(texts[0]):
            return
    if not _has_room():
        return
    for form in texts:
        _hold(_texts, form, _texts.get(form, False))
    _hold(_numbers, value, False)


def met(method: str, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> None:
    """Learn what is sent to a method, or arrives there, under a redacted name, before anything that may hold it is written.

    Under a name is: as a parameter of a method that this process knows, a keyword, a key or a field, among the first `MOST_MET`
    values of an argument, the outer ones first. Call it only while something is redacted (`is_active`). Raises nothing.
    """
    for position, value in enumerate(args):
        _take_in(value, _name_at(method, position) is not None)
    for keyword, value in (kwargs or {}).items():
        _take_in(value, _keyword_name(method, keyword) is not None)


def returned(method: str, result: Any) -> bool:
    """Learn what a method has returned: all of it, if the method has a redacted name; returns whether there was a secret.

    Call it only while something is redacted (`is_active`).
    """
    return result is not None and _take_in({method: result}, False)


def scrubbed(text: str) -> str:
    """`text` without any secret that this process has met."""
    if not is_active:
        return text
    for secret in sorted((secret for secret in _texts if secret in text), key=len, reverse=True):
        before, found, after = text.partition(secret)
        after = (
            "" if _texts[secret] else after.replace(secret, REPLACEMENT)
        )  # what follows a head is of the secret, too
        text = f"{before}{REPLACEMENT}{after}" if found else text
    return text


def is_secret(number: int | float) -> bool:
    """Whether a number is one that this process has met as a secret, with either sign."""
    return abs(number) in _numbers


def holds_secret(raw: bytes | memoryview, shown: int) -> bool:
    """Whether a secret begins in the first `shown` of some bytes."""
    head = bytes(raw[: shown + max(map(len, _bytes), default=0)])
    return any(secret in head for secret in _bytes)


def mark(name: Any) -> dict[str, str]:
    """What stands for a value that is not written."""
    return {"$redacted": str.__str__(name)}


def purged(value: Any, depth: int = 0) -> Any:
    """Parsed JSON without what is redacted here: for values recorded by a process that did not know of it."""
    if isinstance(value, str):
        return scrubbed(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return mark("number") if is_secret(value) else value
    if isinstance(value, list) and depth < MOST_DEPTH:
        return [purged(item, depth + 1) for item in value]
    if not isinstance(value, dict) or depth >= MOST_DEPTH:
        return value
    if isinstance(raw := value.get("$bytes"), str) and holds_secret(blob := _decoded(raw), len(blob)):
        return mark("bytes")
    for key, item in value.items():
        if is_redacted(key) and not _is_mark(item):
            learn(item)
    return {key if key in _TAGS else scrubbed(key): _purged_under(key, item, depth + 1) for key, item in value.items()}


def _purged_under(key: str, value: Any, depth: int) -> Any:
    if is_redacted(key):
        return value if _is_mark(value) else mark(key)
    return purged(value, depth)


def _decoded(raw: str) -> bytes:
    """The bytes of a blob that has been recorded; none if it is damaged."""
    with suppress(ValueError):
        return base64.b64decode(raw)
    return b""


def _is_mark(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"$redacted"}


def pattern() -> str | None:
    """A regular expression that JSON text matches if it may have a redacted name or a secret; None if there is nothing."""
    if len(_texts) > MOST_LOOKED_FOR:
        return ""
    words = {f'{re.escape(name)}_*"' for name in _names} | {re.escape('"$bytes"') for _ in list(_bytes)[:1]}
    words |= {re.escape(form) for secret in _texts for form in (secret, *_escaped(secret)[2:])}
    words |= {
        re.escape('"$int"') for number in _numbers if number.__class__ is int and number.bit_length() > LONGEST_NUMBER
    }
    return None if not words else f"(?i){'|'.join(sorted(words))}" if sum(map(len, words)) <= LONGEST_PATTERN else ""


# Parameters


def know(kind: type, joins: Mapping[tuple[str, ...], str] | None = None) -> None:
    """Learn which parameters the methods of a machine's class have; `joins`: by its ports, which method takes them."""
    for base in kind.__mro__[:-1]:
        for name, member in vars(base).items():
            found = _parameters_of(member)
            if found is not None:
                _know(name, found)
    for ports, method in (joins or {}).items():
        for position, port in enumerate(ports):
            for found in list(_parameters.get(method, ())):
                taken = found.at(position)
                _know(port, Parameters((), frozenset(), taken, taken))


def _know(method: str, found: Parameters) -> None:
    known = _parameters.setdefault(method, [])
    if found not in known:
        known.append(found)


def _parameters_of(member: Any) -> Parameters | None:
    """The parameters of a method, or of what its decorator has wrapped; None if they cannot be told."""
    function = getattr(member, "__func__", member)
    for _ in range(MOST_DEPTH):
        if (wrapped := getattr(function, "__wrapped__", None)) is None:
            break
        function = wrapped
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    names, count = code.co_varnames, code.co_argcount
    named = count + code.co_kwonlyargcount
    has_rest, has_keywords = bool(code.co_flags & inspect.CO_VARARGS), bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return Parameters(
        names[0 if isinstance(member, staticmethod) else 1 : count],
        frozenset(names[:named]),
        names[named] if has_rest else None,
        names[named + has_rest] if has_keywords else None,
    )


def arguments(method: str, args: Sequence[Any]) -> list[Any]:
    """Positional arguments with those of redacted parameters taken out; all of them if the method is unknown here."""
    if not _names:
        return list(args)
    return [_out(_name_at(method, position, UNKNOWN), value) for position, value in enumerate(args)]


def logged(method: str, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None) -> tuple[Any, ...]:
    """The positional arguments of a call as its sender's log holds them; what they hold of secrets is learned first."""
    if not is_active:
        return tuple(args or ())
    met(method, args or (), kwargs)
    return tuple(arguments(method, args or ()))


def keywords(method: str, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments with those taken out that a redacted parameter of another name takes."""
    if not _names:
        return dict(kwargs)
    return {name: _out(_keyword_name(method, name), value) for name, value in kwargs.items()}


def _is_handle(value: Any) -> bool:
    """Whether it is a machine's handle. Its class tells: the value itself, which may answer anything, is not asked."""
    return in_class(type(value), "__machine_name__") is not None


def _out(name: str | None, value: Any) -> Any:
    """The value, or what stands for it under a redacted name; None, booleans and handles of machines are no secrets."""
    if name is None or value is None or value is True or value is False or _is_handle(value):
        return value
    if name != UNKNOWN:
        learn(value)
    return mark(name)


def _name_at(method: str, position: int, unknown: str | None = None) -> str | None:
    """The redacted name under which a positional argument arrives; `unknown` if the method is unknown here."""
    if is_redacted(method):
        return method
    known = _parameters.get(method)
    if known is None:
        return unknown
    return next((name for item in known if (name := item.at(position)) is not None and is_redacted(name)), None)


def _keyword_name(method: str, keyword: str) -> str | None:
    """The redacted name under which a keyword argument arrives."""
    if is_redacted(keyword):
        return keyword
    if is_redacted(method):
        return method
    taken = (item.keywords for item in _parameters.get(method, ()) if keyword not in item.named)
    return next((name for name in taken if name is not None and is_redacted(name)), None)
