"""Where a history is: a folder, or an address of an object store like `s3://bucket/path`; only the names, without a look.

Imports no library beside the standard one: settings are checked with it before anything heavy is loaded.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from ray_snapshot.errors import RaySnapshotError

SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "abfs": "az", "abfss": "az"}
"""The schemes of addresses, and how they are written from then on."""

VARIABLES = {"s3": "AWS_", "gs": "GOOGLE_", "az": "AZURE_"}
"""What the settings of a store begin with, in the environment."""

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_FLATTENED = re.compile(rf"({'|'.join(SCHEMES)}):/([^/].*)", re.DOTALL)
_FILE = re.compile(r"file://(localhost)?(/.*)", re.DOTALL)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_KEY = re.compile(r"[A-Za-z0-9._=+@~,-]+(?: +[A-Za-z0-9._=+@~,-]+)*")


@dataclass(frozen=True, slots=True, order=True)
class StorePath:
    """A place in an object store, used like a `Path`: `root` is `s3://bucket`, `key` what stands behind it."""

    root: str
    key: str = ""

    def __str__(self) -> str:
        return f"{self.root}/{self.key}" if self.key else self.root

    def __truediv__(self, name: str | PurePosixPath) -> StorePath:
        return self.joinpath(str(name))

    def joinpath(self, *names: str) -> StorePath:
        """The place below; names may hold slashes."""
        return StorePath(self.root, "/".join(part for part in (self.key, *names) if part))

    @property
    def name(self) -> str:
        """The last part of the key, or the bucket."""
        return (self.key or self.root).rsplit("/", 1)[-1]

    @property
    def suffix(self) -> str:
        """What the name ends in, from its last dot on."""
        return PurePosixPath(self.name).suffix

    @property
    def parent(self) -> StorePath:
        """The place above."""
        return StorePath(self.root, self.key.rpartition("/")[0])

    def with_name(self, name: str) -> StorePath:
        """Another place beside."""
        return self.parent / name

    def relative_to(self, other: StorePath) -> PurePosixPath:
        """The names from another place on; raises `ValueError` if this is not below it."""
        inner = PurePosixPath(self.key).relative_to(other.key) if self.root == other.root else None
        if inner is None:
            raise ValueError(f"{self} is not below {other}")
        return inner


AnyPath = Path | StorePath


def is_address(text: object) -> bool:
    """Whether a text is an address of some store, known or not, and no path: `scheme://...`, but for `file://`."""
    if isinstance(text, StorePath):
        return True
    found = _ADDRESS.fullmatch(str(text)) or (isinstance(text, Path) and _FLATTENED.fullmatch(str(text)))
    return bool(found) and str(text).partition(":")[0].lower() != "file"


def parse(text: object, error: type[RaySnapshotError]) -> StorePath:
    """An address as a place in a store; raises `error` for one that none can be, without what may be secret in it."""
    if isinstance(text, StorePath):
        return text
    given = _FLATTENED.sub(r"\1://\2", str(text)) if isinstance(text, Path) else str(text)
    scheme, _, rest = given.partition("://")
    shown = shown_address(given)
    if scheme.lower() not in SCHEMES:
        raise error(
            f"history {shown}: {scheme}:// is the address of no store that is known here: give a folder, or an address that"
            " begins with s3://, gs:// or az://",
            path=shown,
        )
    bucket, _, key = rest.partition("/")
    if "@" in bucket and not (scheme.lower().startswith("abfs") and ":" not in bucket):
        raise error(
            f"history {shown}: an address holds no user and no password: take them out, and set them in the environment"
            f" ({VARIABLES[SCHEMES[scheme.lower()]]}...)",
            path=shown,
        )
    names = [name for name in key.split("/") if name]
    bucket, _, account = bucket.partition("@")
    wrong = [name for name in names if not _KEY.fullmatch(name) or set(name) == {"."}]
    if not _BUCKET.fullmatch(bucket) or (account and not _BUCKET.fullmatch(account)) or wrong:
        raise error(
            f"history {shown}: it names no place in a store: write {scheme}://BUCKET/PATH, with letters, digits, spaces"
            " inside names, and . _ - = + @ ~ ,",
            path=shown,
        )
    if account:
        return StorePath(f"abfss://{bucket}@{account}", "/".join(names))
    return StorePath(f"{SCHEMES[scheme.lower()]}://{bucket}", "/".join(names))


def shown_address(text: str) -> str:
    """An address, or a path, for people: without user, password and query, and short."""
    found = _ADDRESS.fullmatch(text)
    if not found:
        return text[:200]
    scheme, rest = found[1], re.split(r"[?#]", found[2], maxsplit=1)[0]
    place, slash, key = rest.partition("/")
    if "@" in place and not (scheme.lower().startswith("abfs") and ":" not in place):
        place = "..." + place[place.rindex("@") :]
    return f"{scheme}://{place}{slash}{key}"[:200]


def given(path: str | os.PathLike[str] | StorePath, error: type[RaySnapshotError]) -> AnyPath:
    """What a person has given as a history: a path as it is, or a place in a store; raises `error` for any other address."""
    if isinstance(path, StorePath):
        return path
    if found := _FILE.fullmatch(str(path)):
        return Path(unquote(found[2]))
    return parse(path, error) if is_address(path) else Path(path)


def absolute(path: str | os.PathLike[str] | StorePath, error: type[RaySnapshotError]) -> str:
    """The same as a text that means the same wherever a program goes."""
    found = given(path, error)
    return str(found) if isinstance(found, StorePath) else str(found.absolute())
