"""Checkpoints: what a restore needs of a snapshot, in `HISTORY/checkpoints/SNAPSHOT.checkpoint`.

A stranger who can write such a file could have any program run when it is unpickled. So each ends in a keyed digest
(HMAC-SHA256, RFC 2104), and `read` returns nothing of it before that has been checked. Layout:

    MAGIC | length of the header, 8 bytes | header, JSON | sections, one behind the other | digest of all that, 32 bytes

The header names the snapshot (a file under another's name is refused) and how long each section is. The sections are pickles
of `runtime.checkpointing`; nothing here unpickles. Imports no library beside the standard one.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import io
import json
import os
import secrets
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ray_snapshot.addresses import AnyPath, StorePath, given
from ray_snapshot.errors import CheckpointError, HistoryWriteError, NotRestorableError
from ray_snapshot.history import inside, places
from ray_snapshot.limits import LIMITS

if TYPE_CHECKING:
    from ray_snapshot.snapshot import Snapshot

FOLDER = "checkpoints"
SUFFIX = ".checkpoint"
_BEGUN = ".tmp-"
MAGIC = b"RSCHECK1"
KEY_VARIABLE = "RAY_SNAPSHOT_KEY"
_LENGTH = 8
_DIGEST = hashlib.sha256().digest_size


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`about`: snapshot_id, system, run_id, number, protocol, aliases (the runs that handles in it may name).

    `sections_of_actors`: how many sections, the first, are of watched actors; `life`: which of the systems that have joined
    their watch the others are of.
    """

    about: Mapping[str, Any]
    sections: Sequence[bytes]

    @property
    def snapshot_id(self) -> str:
        """The snapshot it belongs to."""
        return str(self.about["snapshot_id"])

    @property
    def of_actors(self) -> Sequence[bytes]:
        """The sections of watched actors."""
        return self.sections[: self._count]

    @property
    def of_hosts(self) -> Sequence[bytes]:
        """The sections of machines of hosts."""
        return self.sections[self._count :]

    @property
    def _count(self) -> int:
        return int(self.about.get("sections_of_actors", 0))


# ---- the key ------------------------------------------------------------------------------------------------------------


def key_file() -> Path:
    """Where the key is kept if the environment does not hold it."""
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "ray-snapshot" / "key"


def checkpoint_key(*, is_made: bool = True) -> bytes:
    """The key: from `RAY_SNAPSHOT_KEY`, or from a file that only its owner may read, made (or not) if there is none.

    Raises `CheckpointError` for a key that is too short, a file that others may read or write, or that is not there.
    """
    given = os.environ.get(KEY_VARIABLE)
    if given is not None:
        return _long_enough(given.strip().encode(), f"${KEY_VARIABLE}")
    path = key_file()
    try:
        if not path.exists():
            if not is_made:
                raise _no_key(path)
            _make_key(path)
        return _long_enough(_read_private(path).strip(), str(path))
    except OSError as fault:
        raise CheckpointError(
            f"the key of checkpoints cannot be read from {path} ({fault.strerror}): set {KEY_VARIABLE}", path=str(path)
        ) from fault


def _no_key(path: Path) -> CheckpointError:
    return CheckpointError(
        f"there is no key of checkpoints here ({KEY_VARIABLE} is not set, and {path} is not there): bring it from where the"
        " snapshot was taken",
        path=str(path),
    )


def _long_enough(key: bytes, where: str) -> bytes:
    if len(key) < LIMITS.shortest_key_characters:
        raise CheckpointError(
            f"the key of checkpoints in {where} has {len(key)} characters; it must have at least"
            f" {LIMITS.shortest_key_characters}",
            path=where,
        )
    return key


def _make_key(path: Path) -> None:
    """Make a key file, whole or not at all; if two processes make one at once, the first one counts."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent)  # rights: the owner's only
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_hex(32).encode())
        os.link(name, path)
    except FileExistsError:
        pass
    finally:
        os.unlink(name)


def _read_private(path: Path) -> bytes:
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode) or about.st_size > LIMITS.key_file_bytes:
            raise CheckpointError(
                f"the key of checkpoints, {path}, is no file of a key: remove it, and put the key in its place, or set"
                f" {KEY_VARIABLE}",
                path=str(path),
            )
        if about.st_uid != os.geteuid() or stat.S_IMODE(about.st_mode) & 0o077:
            raise CheckpointError(
                f"the key of checkpoints, {path}, must belong to you and be readable by you only (chmod 600); it has mode"
                f" {stat.S_IMODE(about.st_mode):o}: with it anybody could forge a checkpoint, and so run programs as you",
                path=str(path),
            )
        return file.read(LIMITS.key_file_bytes)


# ---- files --------------------------------------------------------------------------------------------------------------


def _top(history: str | AnyPath) -> AnyPath:
    """The place of the history; a folder may be a link itself, and nothing below it is followed."""
    found = given(history, HistoryWriteError)
    return found if isinstance(found, StorePath) else found.expanduser().resolve()


def path_of(history: str | AnyPath, snapshot_id: str) -> AnyPath:
    """Where the checkpoint of a snapshot is; raises `CheckpointError` for what is no snapshot's id."""
    if not snapshot_id or not all(char.isalnum() or char in "-_." for char in snapshot_id) or snapshot_id[0] == ".":
        raise CheckpointError(f"{snapshot_id!r} is no snapshot's id", path=None)
    return _top(history) / FOLDER / f"{snapshot_id}{SUFFIX}"


def write(history: str | AnyPath, checkpoint: Checkpoint, key: bytes) -> None:
    """Write a checkpoint: the whole file is there, on the disk, or none. Raises `HistoryWriteError`."""
    path = path_of(history, checkpoint.snapshot_id)
    top = _top(history)
    begun = path.with_name(f"{_BEGUN}{secrets.token_hex(6)}")
    try:
        if isinstance(top, Path):
            top.mkdir(mode=0o700, parents=True, exist_ok=True)
            with inside.folder(top, top / FOLDER, is_made=True, mode=0o700):
                pass
        places.at(top).write_whole(top, path, begun, lambda file: _write_sealed(file, checkpoint, key), 0o600)
    except OSError as fault:
        raise HistoryWriteError(f"checkpoint {path} cannot be written: {fault.strerror}", path=str(path)) from fault


def _write_sealed(file: Any, checkpoint: Checkpoint, key: bytes) -> None:
    sections = [len(part) for part in checkpoint.sections]
    if sum(sections) > LIMITS.checkpoint_bytes - LIMITS.checkpoint_header_bytes:
        raise OSError(errno.EFBIG, f"it would take more than {LIMITS.checkpoint_bytes >> 30} GiB")
    header = json.dumps({**checkpoint.about, "sections": sections, "digest": _digest(checkpoint.sections)}).encode()
    seal = hmac.new(key, digestmod=hashlib.sha256)
    for part in (MAGIC, len(header).to_bytes(_LENGTH, "big"), header, *checkpoint.sections):
        seal.update(part)
        file.write(part)
    file.write(seal.digest())


def read(history: str | AnyPath, snapshot_id: str, key: bytes) -> Checkpoint:
    """The checkpoint of a snapshot, if it is whole and was written with this key.

    Raises `NotRestorableError` if there is none, `CheckpointError` if it is damaged, forged, or of another snapshot.
    """
    path, top = path_of(history, snapshot_id), _top(history)
    try:
        with places.at(top).open_binary(top, path) as file:
            size = file.seek(0, os.SEEK_END)
            _stated(file, size, path)
            file.seek(0)
            _check_seal(file, size, path, key)  # before it is in memory: a forged one takes none
            file.seek(0)
            content = file.read(size)
    except FileNotFoundError:
        raise NotRestorableError(
            f"snapshot {snapshot_id} has no checkpoint in {path.parent}: it was taken without checkpoint=True, or had"
            " obstacles (see `ray-snapshot history show`)",
            obstacles=[],
        ) from None
    except OSError as fault:
        raise CheckpointError(f"checkpoint {path} cannot be read: {fault.strerror}", path=str(path)) from fault
    return _opened(content, path, snapshot_id, key)


def _opened(content: bytes, path: AnyPath, snapshot_id: str, key: bytes) -> Checkpoint:
    file, size = io.BytesIO(content), len(content)
    _check_seal(file, size, path, key)
    stated = _stated(file, size, path)
    if stated.about["snapshot_id"] != snapshot_id:
        raise CheckpointError(f"checkpoint {path} is of snapshot {stated.about['snapshot_id']}", path=str(path))
    return Checkpoint(stated.about, [file.read(length) for length in stated.lengths])


def _check_seal(file: BinaryIO, size: int, path: AnyPath, key: bytes) -> None:
    """Raise `CheckpointError` unless the digest at the end of a file is that of what stands before it."""
    seal = hmac.new(key, digestmod=hashlib.sha256)
    for piece in _pieces(file, size - _DIGEST):
        seal.update(piece)
    if not hmac.compare_digest(seal.digest(), file.read(_DIGEST)):
        raise _damaged(path)


def _pieces(file: BinaryIO, size: int) -> Iterator[bytes]:
    while size > 0 and (piece := file.read(min(1 << 20, size))):
        yield piece
        size -= len(piece)


def _damaged(path: AnyPath) -> CheckpointError:
    return CheckpointError(
        f"checkpoint {path} is damaged, or was not written with this key ({KEY_VARIABLE}, or {key_file()}): nothing of it was"
        " loaded",
        path=str(path),
    )


@dataclass(frozen=True, slots=True)
class Stated:
    """What a file says of itself, of which nothing has been checked but that its parts are as long as it says."""

    about: dict[str, Any]
    lengths: list[int]
    """The lengths of the sections, in bytes."""
    digest: str | None
    """SHA-256 of the sections; None in files of older versions."""


def _stated(file: BinaryIO, size: int, path: AnyPath) -> Stated:
    """What the header says; `file` is at the first section then. Raises `CheckpointError`."""
    file.seek(0)
    if size > LIMITS.checkpoint_bytes or file.read(len(MAGIC)) != MAGIC:
        raise _damaged(path)
    length = int.from_bytes(file.read(_LENGTH), "big")
    try:
        about = json.loads(file.read(min(length, LIMITS.checkpoint_header_bytes)))
        lengths, digest = about.pop("sections"), about.pop("digest", None)
        fits = sum(lengths) + file.tell() + _DIGEST == size and min(lengths, default=0) >= 0
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise _damaged(path) from None
    if not fits or not isinstance(about.get("snapshot_id"), str):
        raise _damaged(path)
    return Stated(about, lengths, digest)


def _digest(sections: Iterable[bytes]) -> str:
    found = hashlib.sha256()
    for section in sections:
        found.update(section)
    return found.hexdigest()


def check(history: str | AnyPath, snapshot: Snapshot, key: bytes | None) -> bool:
    """Check the checkpoint of a snapshot without loading it; returns whether it says what its sections must hash to.

    Raises `NotRestorableError` if there is none, `CheckpointError` if it is cut, damaged, or of another snapshot.
    """
    path, top = path_of(history, snapshot.snapshot_id), _top(history)
    try:
        with places.at(top).open_binary(top, path) as file:
            size = file.seek(0, os.SEEK_END)
            stated = _stated(file, size, path)
            _check_owner(stated.about, snapshot, path)
            if stated.digest is not None and stated.digest != _digest(_pieces(file, sum(stated.lengths))):
                raise _damaged(path)
            if key is not None:
                file.seek(0)
                _check_seal(file, size, path, key)
    except FileNotFoundError:
        raise NotRestorableError(f"snapshot {snapshot.snapshot_id} has no checkpoint", obstacles=[]) from None
    except OSError as fault:
        raise CheckpointError(f"checkpoint {path} cannot be read: {fault.strerror}", path=str(path)) from fault
    return stated.digest is not None


def _check_owner(about: Mapping[str, Any], snapshot: Snapshot, path: AnyPath) -> None:
    for what in ("snapshot_id", "run_id", "system"):
        said = about.get(what, getattr(snapshot, what))
        if said != getattr(snapshot, what):
            raise CheckpointError(
                f"checkpoint {path} is of the {what.removesuffix('_id')} {str(said)[:200]}: it is another snapshot's",
                path=str(path),
            )


# ---- upkeep -------------------------------------------------------------------------------------------------------------


def there(history: str | AnyPath, snapshot_ids: Iterable[str]) -> list[AnyPath]:
    """The files of those of some snapshots that have a checkpoint."""
    known = {path.name: path for path, _ in _all(history)}
    names = (f"{snapshot_id}{SUFFIX}" for snapshot_id in snapshot_ids)
    return [known[name] for name in names if name in known]


def remove(history: str | AnyPath, snapshot_ids: Iterable[str]) -> int:
    """Remove the checkpoints of snapshots that are not listed any more; returns how many there were.

    Raises `HistoryWriteError`.
    """
    found = there(history, snapshot_ids)
    for path in found:
        discard(history, path)
    return len(found)


def discard(history: str | AnyPath, path: AnyPath) -> None:
    """Remove one file, if it is still there; raises `HistoryWriteError`."""
    try:
        places.at(path).unlink(_top(history), path)
    except OSError as fault:
        raise HistoryWriteError(f"checkpoint {path} cannot be removed: {fault.strerror}", path=str(path)) from fault


def older_than(history: str | AnyPath, moment: float) -> dict[AnyPath, str]:
    """Checkpoints, whole or begun, that were last written to before `moment` (seconds since 1970), each with the id of
    its snapshot; empty for those that were only begun, which do not say."""
    whole = {path: path.name.removesuffix(SUFFIX) for path, about in _all(history) if about.st_mtime < moment}
    begun = {path: "" for path, about in _all(history, _BEGUN) if about.st_mtime < moment}
    return dict(sorted((begun | whole).items()))


def _all(history: str | AnyPath, begins: str = "") -> list[tuple[AnyPath, Any]]:
    """Checkpoints that are whole, or those that were begun; raises `HistoryFormatError` for a link in the folder's place."""
    top = _top(history)
    ends = "" if begins else SUFFIX
    return [
        (path, about)
        for path, about in places.at(top).entries(top, top / FOLDER)
        if path.name.startswith(begins) and path.name.endswith(ends) and not stat.S_ISDIR(about.st_mode)
    ]
