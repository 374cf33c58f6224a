"""Texts to integers: where in a column of names each of many other names stands, without a Python object for any."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

_BYTE = 256


class NameIndex:
    """Where in an Arrow array of names other names stand; a name that is there twice stands at its first place."""

    def __init__(self, names: Any) -> None:
        """`names`: an Arrow array of type string."""
        self.names = names

    def positions(self, values: Any) -> Integers:
        """Where each of an Arrow array of strings stands; -1 for those (and nulls) that are not there. O(values + names)."""
        if len(values) == values.null_count or len(self.names) == 0:
            return np.full(len(values), -1, np.int64)
        found = pc.fill_null(pc.index_in(values, value_set=self.names, skip_nulls=True), -1)
        places: Integers = found.to_numpy(zero_copy_only=False).astype(np.int64)
        return places

    def positions_of_runs(self, values: Any) -> Integers:
        """`positions` of a column in which equal values mostly stand together, as in a sorted table: a look-up a run.

        Of a name that is there twice it may be either place. O(values).
        """
        if len(values) == values.null_count:
            return np.full(len(values), -1, np.int64)
        runs = pc.run_end_encode(values)
        size = np.diff(runs.run_ends.to_numpy().astype(np.int64), prepend=0)
        if runs.values.equals(self.names[: len(size)]):
            return np.repeat(np.arange(len(size)), size)
        return np.repeat(self.positions(runs.values), size)


class Words:
    """A column of few different texts as small numbers: read once, then asked often."""

    def __init__(self, column: Any) -> None:
        """`column`: an Arrow array of type string."""
        encoded = column.dictionary_encode("encode")
        self.words = encoded.dictionary.to_pylist()
        codes = encoded.indices.to_numpy()
        self.codes = codes.astype(np.uint8) if len(self.words) <= _BYTE else codes

    def are(self, *words: str) -> Booleans:
        """Which rows have one of these."""
        found = np.zeros(len(self.codes), np.bool_)
        for code, word in enumerate(self.words):
            if word in words:
                found |= self.codes == code
        return found
