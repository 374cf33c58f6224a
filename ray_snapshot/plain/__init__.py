"""Any Python value reduced to plain lists, dictionaries, strings and numbers that strict JSON can hold.

One small function per kind of value (`scalars`, `containers`, `objects`, `arrays`); `handlers` chooses among them by type, and
`Reducer` carries what bounds the work: bytes left, depth, the containers that enclose this one. Numpy, pydantic and the like
are recognised by the names of their types, so nothing but the standard library is ever imported. No code of the program is
called: fields are read from `__dict__` and slots, subclasses of built-in types by the built-in's own methods.
"""

from ray_snapshot.plain.bounds import LARGEST_INTEGER, type_name
from ray_snapshot.plain.reducer import Reducer, TooMuch

__all__ = ["LARGEST_INTEGER", "Reducer", "TooMuch", "type_name"]
