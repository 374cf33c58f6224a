"""The shape of a machine's recorded state: its field names and types, and what pydantic says of its models.

A class that changes from one version of a program to the next leaves several shapes in a history, side by side in its table
`classes`. Shapes are told apart by class and field names; types are those of the annotations, else those first seen. Only
the standard library is imported; of the program only pydantic's `model_json_schema` is called.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from ray_snapshot.encoding import to_json
from ray_snapshot.plain import type_name

MOST_FIELDS = 1_000


class Shape(NamedTuple):
    """One row of `classes`, but for the run and the time."""

    class_name: str
    module: str | None
    version: str
    """A digest of the fields and their types."""
    fields: str
    json_schema: str | None


_known: dict[tuple[type, type, tuple[Any, ...]], Shape] = {}


def shape_of(kind: type, state: Any) -> Shape | None:
    """The shape of the state that a machine of class `kind` gives of itself; None if it has no fields. About 1 us."""
    try:
        return _shape_of(kind, state)
    except Exception:  # the program's own classes may answer anything: then its shape is told by the recorded state
        return None


def _shape_of(kind: type, state: Any) -> Shape | None:
    values = _fields_of(state)
    if values is None or len(values) > MOST_FIELDS:
        return None
    key = kind, type(state), tuple(values)
    found = _known.get(key)
    if found is None:
        annotations = _annotations(kind if type(state) is dict else type(state))
        types = [
            {"name": name, "type": annotations.get(name) or type_name(type(item))} for name, item in values.items()
        ]
        found = _known[key] = _shape(kind.__name__, kind.__module__, types, _json_schema(state, values))
    return found


def shape_of_json(class_name: str, text: str) -> Shape | None:
    """The shape of a recorded state of which nothing is known but its text."""
    try:
        state = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(state, dict) or len(state) > MOST_FIELDS:
        return None
    fields = [{"name": name, "type": _json_type(item)} for name, item in state.items() if not name.startswith("$")]
    return _shape(class_name, None, fields, None)


def _shape(class_name: str, module: str | None, fields: list[dict[str, str]], json_schema: Any) -> Shape:
    texts = to_json(fields).text, None if json_schema is None else to_json(json_schema).text
    version = hashlib.sha256("\n".join([class_name, module or "", *map(str, texts)]).encode()).hexdigest()[:12]
    return Shape(class_name, module, version, *texts)


def _fields_of(state: Any) -> Mapping[str, Any] | None:
    """The fields of a state by name: of a dict, a named tuple, or an object with `__dict__`; None of anything else."""
    if type(state) is dict:
        return state if all(type(name) is str for name in state) else None
    fields = getattr(type(state), "_fields", None)
    if isinstance(state, tuple) and isinstance(fields, tuple):
        return dict(zip(fields, state, strict=True))
    own = getattr(state, "__dict__", None)
    return own if isinstance(own, dict) else None


def _annotations(kind: type) -> dict[str, str]:
    """The annotations of a class and its bases as text; none is evaluated."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        for name, item in inspect.get_annotations(base).items():
            found[name] = item if isinstance(item, str) else type_name(item) if isinstance(item, type) else str(item)
    return found


def _json_schema(state: Any, values: Mapping[str, Any]) -> Any:
    """What pydantic says of the state, or of the fields that are models; None if nothing is one."""
    if _is_model(state):
        return _schema_of(state)
    found = {name: _schema_of(item) for name, item in values.items() if _is_model(item)}
    return found or None


def _is_model(value: Any) -> bool:
    return any(base.__module__ == "pydantic.main" and base.__name__ == "BaseModel" for base in type(value).__mro__)


def _schema_of(model: Any) -> Any:
    try:
        return type(model).model_json_schema()
    except Exception as error:  # a model with a type that JSON Schema has not
        return {"$unreadable": type_name(type(model)), "error": type(error).__name__}


def _json_type(value: Any) -> str:
    if isinstance(value, dict):
        tag = next((key for key in value if key.startswith("$")), None)
        return "object" if tag is None else str(value[tag]) if tag == "$type" else tag
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", type(None): "null"}
    return kinds[type(value)]
