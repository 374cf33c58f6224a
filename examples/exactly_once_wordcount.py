"""Counting words while hosts are killed: every word counts once, under every protocol that promises it.

Two sources read a text, splitters take the lines apart, counters count (each word has one counter, by its hash), and a sink
writes what they have counted to a folder of Parquet files. While they work, processes are killed with `kill -9`, at
random. Each time the whole system goes back to its last snapshot: the sources to the position that it holds, the counters to
their counts, the sink to what it had staged; and what was between them is sent again.

The text: all modules of Python's standard library, in the order of their paths, about 12 MB. Every machine that runs this
has it, and any program can count it again; this one does, with three lines that know of no machines.

What to look at: the counts in the files equal those, whatever was killed. And under `at-least-once-barrier` they do not:
some messages have come twice, exactly as many as the snapshots gone back to had foretold (`duplicate_count`).

    python examples/exactly_once_wordcount.py --kills 3
    python examples/exactly_once_wordcount.py --kills 3 --protocol at-least-once-barrier --seed 7

The program may be killed, too, if it was given a folder to keep (`--out DIR`): this goes on, to the same result:

    ray-snapshot restore DIR/history latest examples/exactly_once_wordcount.py --out DIR
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.dataset
import ray

import ray_snapshot as rs
from ray_snapshot import detectors, pipelines

PROTOCOLS = ("chandy-lamport", "observer", "aligned-barrier", "unaligned-barrier", "at-least-once-barrier")
SOURCES, SPLITTERS, COUNTERS = 2, 2, 3
WORD = re.compile(r"[a-z]+")
PATIENCE_S = 120.0


class Mortal(rs.SnapshotMixin):
    """Says in which process it lives, so that this can be killed, and counts its messages."""

    sent = 0
    accepted = 0

    def pid(self) -> int:
        return os.getpid()


class Lines(Mortal, pipelines.Source):
    """Reads its part of the text, and deals the lines out to the splitters."""

    def __init__(self, path: str, splitters: list[Any]) -> None:
        super().__init__(pipelines.TextFile(path, errors="replace", chunk_bytes=32_768), splitters)

    def emit(self, rows: list[str]) -> None:
        self.sent += 1
        super().emit(rows)

    def is_done(self) -> bool:
        return self.is_over


class Splitter(Mortal):
    """Takes lines apart, and sends each counter its words, many at once."""

    def __init__(self, counters: list[Any], slowness_s: float) -> None:
        self.counters = counters
        self.slowness_s = slowness_s

    def take(self, lines: list[str]) -> None:
        self.accepted += 1
        shares: list[Counter[str]] = [Counter() for _ in self.counters]
        for word, count in Counter(WORD.findall("\n".join(lines).lower())).items():
            shares[crc32(word.encode()) % len(shares)][word] += count
        for counter, share in zip(self.counters, shares, strict=True):
            self.sent += 1
            counter.add.send(dict(share))
        time.sleep(self.slowness_s)  # stands for work


class Count(Mortal):
    """Counts its words, and tells the sink by how much each count has grown."""

    def __init__(self, sink: Any) -> None:
        self.sink = sink
        self.words = 0

    def add(self, counts: dict[str, int]) -> None:
        self.accepted += 1
        self.words += sum(counts.values())
        self.sent += 1
        self.sink.write.send({"word": list(counts), "count": list(counts.values())})


class Growth(Mortal, pipelines.ParquetSink):
    """Writes it down; the sum of a word's rows is its count."""

    def write(self, rows: Any) -> None:
        self.accepted += 1
        super().write(rows)


# ---- the text -----------------------------------------------------------------------------------------------------------


def make_text(folder: Path, most_bytes: int | None = None) -> list[Path]:
    """Write the standard library's modules, in the order of their paths, into one file per source; returns the
    files."""
    library = Path(os.__file__).parent
    modules = sorted(path.relative_to(library).as_posix() for path in library.rglob("*.py") if _is_module(path))
    parts = [folder / f"text-{number}.txt" for number in range(SOURCES)]
    if not all(part.exists() for part in parts):
        folder.mkdir(parents=True, exist_ok=True)
        for number, part in enumerate(parts):
            texts = [(library / module).read_bytes() for module in modules[number::SOURCES]]
            part.write_bytes(b"".join(texts)[: None if most_bytes is None else most_bytes // SOURCES])
    return parts


def _is_module(path: Path) -> bool:
    return not {"site-packages", "dist-packages", "test", "tests", "__pycache__"}.intersection(path.parts)


def counted_at_once(parts: list[Path]) -> Counter[str]:
    """Count the words of the text without machines, messages or snapshots."""
    return sum((Counter(WORD.findall(part.read_text("utf-8", "replace").lower())) for part in parts), Counter())


def counted_in(out: Path) -> Counter[str]:
    """What a reader of the output sees."""
    files = [str(path) for path in sorted(out.glob("*.parquet"))]
    table = (
        pyarrow.dataset.dataset(files, format="parquet").to_table() if files else pa.table({"word": [], "count": []})
    )
    found = table.group_by("word").aggregate([("count", "sum")])
    return Counter(dict(zip(found["word"].to_pylist(), found["count_sum"].to_pylist(), strict=True)))


# ---- the system ---------------------------------------------------------------------------------------------------------


def build(system: rs.System, parts: list[Path], out: Path, slowness_s: float) -> Sequence[Any]:
    """Spawn and connect everything, each kind on a host of its own; returns the sources."""
    schema = pa.schema([("word", pa.string()), ("count", pa.int64())])
    sink = system.spawn(Growth, str(out), schema, name="sink", role="sink")
    counters = _many(system, Count, "count", [(sink,)] * COUNTERS)
    splitters = _many(system, Splitter, "split", [(counters, slowness_s * number) for number in range(SPLITTERS)])
    sources = _many(system, Lines, "lines", [(str(part), splitters) for part in parts], role="source")
    for upstream, downstream in ((sources, splitters), (splitters, counters), (counters, [sink])):
        for source in upstream:
            for target in downstream:
                system.connect(source, target)
    return sources


def _many(system: rs.System, kind: type, name: str, args: list[tuple[Any, ...]], **more: Any) -> Sequence[Any]:
    return system.spawn_many(kind, args=args, names=[f"{name}-{number}" for number in range(len(args))], **more)


def kill_hosts(system: rs.System, kills: int, seed: int, say: Callable[[str], None]) -> int:
    """Kill a host at random, let the others work or recover, and again; returns how many died before all was read."""
    chance, killed = random.Random(seed), 0
    sources = [system.machine(f"lines-{number}") for number in range(SOURCES)]
    while killed < kills:
        victim = chance.choice(["lines-0", "split-0", "count-0", "sink"])
        try:
            process = ray.get(system.machine(victim).pid.remote(), timeout=PATIENCE_S)
            time.sleep(chance.uniform(0.1, 1.5))
            if all(ray.get([source.is_done.remote() for source in sources], timeout=PATIENCE_S)):
                break
            os.kill(process, signal.SIGKILL)
        except (rs.RolledBackError, rs.HostDiedError):
            continue  # it is still recovering from the last one
        killed += 1
        say(f"  killed process {process}, the host of {victim}")
    return killed


def play(
    out: Path,
    *,
    history: str | None = None,
    protocol: str = PROTOCOLS[0],
    kills: int = 0,
    seed: int = 0,
    every: float = 0.3,
    most_bytes: int | None = None,
    slowness_s: float = 0.03,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Count the words of the text while hosts are killed; returns what was counted, and what should have been."""
    history = history or str(out / "history")
    parts = make_text(out / "text", most_bytes)
    settings: dict[str, Any] = {"protocol": protocol, "every": every, "mailbox_bound": 4, "detectors": []}
    with rs.System("wordcount", history=history, recover="rollback", most_failures=kills + 5, **settings) as system:
        sources = build(system, parts, out / "counts", slowness_s)
        system.start()
        if not system.restored:
            for source in sources:
                source.begin.send()
        killed = kill_hosts(system, kills, seed, say)
        system.wait_for(detectors.Termination(), timeout=10 * PATIENCE_S)
        last = system.commit(timeout=PATIENCE_S)
    counted, expected = counted_in(out / "counts"), counted_at_once(parts)
    restored = gone_back_to(rs.History(history), last)
    return {
        "protocol": protocol,
        "bytes": sum(part.stat().st_size for part in parts),
        "kills": killed,
        "restored": [snapshot.snapshot_id for snapshot in restored],
        "words": expected.total(),
        "counted": counted.total(),
        "equal": counted == expected,
        "messages_twice": messages(last, "accepted") - messages(last, "sent"),
        "foretold": sum(foretold(snapshot) for snapshot in restored),
        "top": expected.most_common(5),
    }


# ---- what the snapshots say ---------------------------------------------------------------------------------------------


def gone_back_to(history: rs.History, last: rs.Snapshot) -> list[rs.Snapshot]:
    """The snapshots that the system went back to and went on from, up to `last`; the first one first."""
    found: list[rs.Snapshot] = []
    snapshot = last
    while snapshot.restored_from is not None:
        snapshot = history.load(snapshot.restored_from)
        found.insert(0, snapshot)
    return found


def foretold(snapshot: rs.Snapshot) -> int:
    """How many messages between machines come twice if the system goes back to it."""
    rows = snapshot.tables["channels"].select(["source", "duplicate_count"]).to_pylist()
    return sum(row["duplicate_count"] for row in rows if row["source"] != "driver")


def messages(snapshot: rs.Snapshot, what: str) -> int:
    """How many messages the machines have `sent`, or `accepted`, by what they say themselves."""
    return sum(machine.state.get(what, 0) for machine in snapshot.machines.values() if machine.state)


def tell(facts: dict[str, Any], seconds: float) -> None:
    print(f"{facts['bytes'] / 1e6:.1f} MB, {facts['words']:,} words, {seconds:.1f} s; {facts['protocol']}.")
    print(f"{facts['kills']} hosts killed; the result rests on {len(facts['restored'])} snapshots gone back to.")
    print(f"Counted: {facts['counted']:,} words. Equal to the undisturbed count, word by word: {facts['equal']}.")
    print(f"Messages accepted twice: {facts['messages_twice']}; foretold by those snapshots: {facts['foretold']}.")
    print("Most frequent: " + ", ".join(f"{word} {count:,}" for word, count in facts["top"]) + ".")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Count words exactly once, while hosts are killed.")
    parser.add_argument("--kills", type=int, default=3, metavar="N", help="hosts to kill (default: 3)")
    parser.add_argument("--protocol", choices=PROTOCOLS, default=PROTOCOLS[0])
    parser.add_argument("--seed", type=int, help="of who is killed when (default: another one each time)")
    parser.add_argument("--out", metavar="DIR", help="keep text, counts and history there (default: nothing is kept)")
    parser.add_argument("--history", metavar="DIR", help="keep the history there (default: DIR/history)")
    parser.add_argument("--every", type=float, default=0.3, metavar="S", help="seconds between snapshots")
    parser.add_argument("--bytes", type=int, metavar="N", help="so much of the text (default: all)")
    parser.add_argument("--json", action="store_true", help="print what was found as one JSON object")
    options = parser.parse_args(argv)
    seed = random.randrange(10**6) if options.seed is None else options.seed
    say = (lambda _: None) if options.json else print
    say(f"seed {seed}")
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        try:
            facts = play(
                Path(options.out or folder), history=options.history, protocol=options.protocol, kills=options.kills,
                seed=seed, every=options.every, most_bytes=options.bytes, say=say,
            )  # fmt: skip
        except (rs.HistoryWriteError, rs.HistoryFormatError) as error:
            parser.error(str(error))
    if options.json:
        print(json.dumps({**facts, "seed": seed}))
    else:
        tell(facts, time.monotonic() - began)
    is_as_promised = facts["equal"] or (facts["protocol"] == PROTOCOLS[-1] and facts["foretold"] > 0)
    return 0 if is_as_promised and facts["messages_twice"] == facts["foretold"] else 1


if __name__ == "__main__":
    sys.exit(main())
