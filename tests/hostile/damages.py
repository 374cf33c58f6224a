"""What the fuzzer does to the folder of a history: each damage takes a source of chance, the history, and a folder outside."""

import json
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import crafted
import pyarrow as pa
import pyarrow.parquet as pq
from hostile_histories import Sentinel

from ray_snapshot.schema import TABLES

Damage = Callable[[Random, Path, Path], None]

EVIL = "a\x1b[2J\x9b31m\u202e\u2066\x07\r\x00z"
"""A text that would move a terminal's cursor."""

TEXTS: tuple[str | None, ...] = (
    None, "", " ", EVIL, "x" * 5_000, "driver", "complete", "aborted", "latest", "-1", "../../x", "/etc/passwd",
    "%2e%2e%2f", "$.a", "null", "[]", "{}", "[[]]", "[null]", "[1, {}]", '{"": {}}', '"x"', "1", "-0.0", "1e999",
    "NaN", "1" * 5_000, '"\\ud800"', "[" * 50_000, '{"a":' * 50_000, "[{}]", '[{"kind": "mail"}]',
    '{"uncovered": 1}', '{"uncovered": [[]]}', '{"$type": "os.system"}', '[{"$kwargs": 1}]',
    '[{"$kwargs": {"x": {}}}]', '{"a": 1, "a": 2}', "{'a': 1}", "[1,]", "\ufeff{}", '{"members": 5}', '{"type": []}',
)  # fmt: skip
EXTREMES = (None, -1, 0, 1, 2, 7, 2**31, 2**63 - 1, -(2**63), 10**15, 253402300799999999, -62135596800000001)
FRACTIONS = (None, -1.0, 0.0, float("nan"), float("inf"), float("-inf"), 1e308, 5e-324)
NAME_LISTS: tuple[Any, ...] = (None, [], [None], [""], [EVIL], ["a", "a"], ["a"] * 3_000, ["nobody"])
OTHER_TYPES = (
    pa.int8(), pa.int64(), pa.uint64(), pa.float32(), pa.float64(), pa.bool_(), pa.binary(), pa.string(),
    pa.large_string(), pa.date32(), pa.timestamp("ns"), pa.timestamp("s", "UTC"), pa.timestamp("us", "Europe/Paris"),
    pa.list_(pa.int64()), pa.list_(pa.list_(pa.string())), pa.struct([("a", pa.int64())]), pa.decimal128(38, 3),
    pa.dictionary(pa.int32(), pa.string()), pa.null(),
)  # fmt: skip
VALUES_OF_A_LOG: tuple[Any, ...] = (
    None, -1, 0, 2**63, 2**70, 1e308, "", "x", EVIL, [], {}, [[[]]], [None], "../../../etc/passwd",
    "file:///etc/passwd", "/etc/passwd", "a\0b", "%00", "x" * 5_000, True, "{}", "[]", "s3://b/x", ".", "..",
    "system=bank", "2026-99-99", "__HIVE_DEFAULT_PARTITION__",
)  # fmt: skip


# ---- bytes, files and folders ------------------------------------------------------------------------------------------


def some_file(chance: Random, history: Path) -> Path:
    return chance.choice(sorted(path for path in history.rglob("*") if path.is_file() and not path.is_symlink()))


def some_folder(chance: Random, history: Path) -> Path:
    return chance.choice(sorted(path for path in history.rglob("*") if path.is_dir() and not path.is_symlink()))


def cut(chance: Random, history: Path, _: Path) -> None:
    file = some_file(chance, history)
    file.write_bytes(file.read_bytes()[: chance.randrange(file.stat().st_size or 1)])


def flip(chance: Random, history: Path, _: Path) -> None:
    file = some_file(chance, history)
    content = bytearray(file.read_bytes() or b"\0")
    for _ in range(chance.choice([1, 3, 30])):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    file.write_bytes(content)


def splice(chance: Random, history: Path, _: Path) -> None:
    file = some_file(chance, history)
    content = file.read_bytes()
    begin, end = sorted(chance.randrange(len(content) + 1) for _ in "be")
    middle = chance.choice([b"", content[begin:end] * 3, chance.randbytes(20), b"\n", b"\0" * 4_096])
    file.write_bytes(content[:begin] + middle + content[end:])


def swap(chance: Random, history: Path, _: Path) -> None:
    one, other = some_file(chance, history), some_file(chance, history)
    if one != other:
        shutil.copyfile(one, other)


def remove(chance: Random, history: Path, _: Path) -> None:
    some_file(chance, history).unlink()


def remove_folder(chance: Random, history: Path, _: Path) -> None:
    shutil.rmtree(some_folder(chance, history))


def empty(chance: Random, history: Path, _: Path) -> None:
    some_file(chance, history).write_bytes(b"")


def put_pickle(chance: Random, history: Path, outside: Path) -> None:
    """Unpickled, it would leave a file beside the history."""
    trap = Sentinel.__new__(Sentinel)
    trap.file = outside / "EXECUTED"
    some_file(chance, history).write_bytes(pickle.dumps(trap))


def in_its_place(chance: Random, history: Path, outside: Path) -> None:
    file = some_file(chance, history)
    file.unlink()
    target = chance.choice(
        ["pipe", "folder", "/dev/zero", "/etc/passwd", "nowhere", file.name, str(history), str(outside)]
    )
    match target:
        case "pipe":
            os.mkfifo(file)
        case "folder":
            file.mkdir()
        case _:
            file.symlink_to(target)


def link_folder(chance: Random, history: Path, outside: Path) -> None:
    folder = some_folder(chance, history)
    other = chance.choice([outside, outside / "other" / folder.relative_to(history), some_folder(chance, history)])
    crafted.replace_by_link(folder, other)


def add_entry(chance: Random, history: Path, outside: Path) -> None:
    names = [
        f"{chance.choice([0, 1, 2, 9, 10**19]):020}.json", f"{1:020}.checkpoint.parquet", "_last_checkpoint",
        "_last_vacuum", "system=x", "_delta_log", EVIL.replace("\0", ""), "x" * 255,
        f"part-{'a' * 12}-{'b' * 12}.parquet", f"{'d' * 12}.json", "bank-00000.checkpoint", "date=2026-99-99",
        ".tmp", "results", "actions", "\udcff",
    ]  # fmt: skip
    place = some_folder(chance, history) / chance.choice(names)
    if place.exists() or place.is_symlink():
        return
    match chance.randrange(5):
        case 0:
            place.mkdir()
        case 1:
            os.mkfifo(place)
        case 2:
            place.symlink_to(outside)
        case 3:
            place.write_bytes(b"")
        case _:
            shutil.copyfile(some_file(chance, history), place)
    if chance.random() < 0.5:
        os.utime(place, (crafted.STALE, crafted.STALE), follow_symlinks=False)


def rename(chance: Random, history: Path, _: Path) -> None:
    path = chance.choice([some_file, some_folder])(chance, history)
    path.rename(path.with_name(chance.choice([path.name + "x", path.name.upper() + "_", "x", ".x", f"{5:020}.json"])))


def lead_outside(chance: Random, history: Path, outside: Path) -> None:
    chance.choice(crafted.CRAFTS)(history, outside)


# ---- rows ---------------------------------------------------------------------------------------------------------------


def data_files(chance: Random, history: Path) -> list[Path]:
    table = chance.choice(sorted(TABLES))
    files = sorted((history / table).glob("system=*/date=*/*.parquet"))
    return files if chance.random() < 0.3 else files[:1]


def rewrite(chance: Random, history: Path, change: Callable[[pa.Table], pa.Table | None]) -> None:
    for file in data_files(chance, history):
        changed = change(pq.read_table(file, partitioning=None))
        if changed is not None:
            pq.write_table(changed, file)


def value_for(chance: Random, kind: pa.DataType, values: list[Any]) -> Any:
    """A value that a column may hold, and that no writer would write; or one of another row."""
    if chance.random() < 0.2:
        return chance.choice(values)
    if pa.types.is_string(kind):
        return chance.choice(TEXTS)
    if pa.types.is_integer(kind) or pa.types.is_timestamp(kind):
        return chance.choice(EXTREMES)
    if pa.types.is_floating(kind):
        return chance.choice(FRACTIONS)
    return chance.choice(NAME_LISTS) if pa.types.is_list(kind) else chance.choice([None, True, False])


def odd_values(chance: Random, history: Path, _: Path) -> None:
    def change(rows: pa.Table) -> pa.Table | None:
        for _ in range(chance.choice([1, 1, 2, 5])) if rows.num_rows else ():
            place = chance.randrange(rows.num_columns)
            field = rows.schema.field(place)
            raw = rows.column(place)
            values = (raw.cast(pa.int64()) if pa.types.is_timestamp(field.type) else raw).to_pylist()
            odd = value_for(chance, field.type, values)
            every = chance.random() < 0.5
            chosen = chance.randrange(len(values))
            new = [odd if every or row == chosen else value for row, value in enumerate(values)]
            rows = rows.set_column(place, field, pa.array(new, field.type))
        return rows

    rewrite(chance, history, change)


def other_types(chance: Random, history: Path, _: Path) -> None:
    """A column of another type, with its values where they can be cast, and with nothing else where they cannot."""

    def change(rows: pa.Table) -> pa.Table:
        place = chance.randrange(rows.num_columns)
        kind = chance.choice(OTHER_TYPES)
        try:
            column = rows.column(place).cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            column = pa.nulls(rows.num_rows, kind)
        return rows.set_column(place, rows.schema.names[place], column)

    rewrite(chance, history, change)


def other_columns(chance: Random, history: Path, _: Path) -> None:
    def change(rows: pa.Table) -> pa.Table:
        names = list(rows.schema.names)
        place = chance.randrange(len(names))
        match chance.randrange(4):
            case 0:
                return rows.drop_columns([names[place]])
            case 1:
                names[place] = chance.choice(
                    ["system", "date", EVIL.replace("\0", ""), names[place].upper(), "x.y", ""]
                )
                return rows.rename_columns(names)
            case 2:
                return rows.append_column(names[place], rows.column(place))
            case _:
                more = chance.choice([["x"], [EVIL], [None]]) * rows.num_rows
                return rows.append_column(chance.choice(["system", "date", "x"]), pa.array(more, pa.string()))

    rewrite(chance, history, change)


def other_rows(chance: Random, history: Path, _: Path) -> None:
    def change(rows: pa.Table) -> pa.Table:
        match chance.randrange(5):
            case 0:
                return rows.slice(0, 0)
            case 1:
                return rows.slice(1)
            case 2:
                return pa.concat_tables([rows, rows])
            case 3:
                return pa.concat_tables([rows.slice(0, 1)] * 3_000)
            case _:
                return rows.take(list(reversed(range(rows.num_rows))))

    rewrite(chance, history, change)


# ---- the log ------------------------------------------------------------------------------------------------------------


def inner_values(chance: Random, action: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    inner: Any = action
    while isinstance(inner, dict) and inner:
        key = chance.choice(sorted(inner))
        yield inner, key
        inner = inner[key]


def edit_log(chance: Random, history: Path, _: Path) -> None:
    log = chance.choice(sorted(history.glob("*/_delta_log/*.json")))
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    places = list(inner_values(chance, chance.choice(actions)))
    inner, key = chance.choice(places[-2:])
    if chance.random() < 0.15:
        inner[chance.choice(["x", "remove", "add", "protocol", "metaData", "path"])] = inner.pop(key)
    else:
        inner[key] = chance.choice(VALUES_OF_A_LOG)
    log.write_text("\n".join(map(json.dumps, actions)))


def edit_actions(chance: Random, history: Path, _: Path) -> None:
    log, other = (chance.choice(sorted(history.glob("*/_delta_log/*.json"))) for _ in "lo")
    lines = log.read_text().splitlines()
    match chance.randrange(4):
        case 0:
            lines.pop(chance.randrange(len(lines)))
        case 1:
            lines.append(chance.choice(lines))
        case 2:
            lines += other.read_text().splitlines()
        case _:
            lines.insert(
                0, chance.choice(["", "{", "[]", "null", "5", '{"add": {}}', '{"x": {}}', "[" * 50_000, '{"txn": 5}'])
            )
    log.write_text("\n".join(lines))


def edit_json(chance: Random, history: Path, _: Path) -> None:
    """One of the small files that hold JSON, such as a writer's record, says something else."""
    found = sorted({*history.glob("_writers/*"), *history.glob("*/_delta_log/_last_checkpoint")})
    place = chance.choice(found) if found else history / "_writers" / f"{'d' * 12}.json"
    place.parent.mkdir(exist_ok=True)
    key = chance.choice(["key", "snapshot_ids", "version", "size"])
    place.write_text(json.dumps({key: chance.choice(VALUES_OF_A_LOG)}) + chance.choice(["", "\n", "\n{torn", "\n[]"]))


ROWS: tuple[Damage, ...] = (odd_values, other_types, other_columns, other_rows)
LOGS: tuple[Damage, ...] = (edit_log, edit_actions, edit_json)
FILES: tuple[Damage, ...] = (
    cut, flip, splice, swap, remove, remove_folder, empty, put_pickle, in_its_place, link_folder, add_entry, rename,
    lead_outside,
)  # fmt: skip


def damage(chance: Random, history: Path, outside: Path) -> list[str]:
    done = []
    for _ in range(chance.choice([0, 1, 1, 1, 1, 2, 3])):
        one = chance.choice(chance.choice([ROWS, ROWS, ROWS, LOGS, FILES]))
        try:
            one(chance, history, outside)
        except (OSError, IndexError, ValueError, pa.ArrowException):
            continue  # what it would damage is damaged, or gone
        done.append(one.__name__)
    return done
