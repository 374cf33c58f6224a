"""A job queue as one finds it in the wild, with a bug: on a small job it works, on a larger one it hangs.

Workers take files of Python's standard library from a dispatcher, count the words in them, and put the counts into a store.
The store tells the dispatcher what is done; after every 25 files the dispatcher asks the store how far they are. Nothing
in here knows of ray-snapshot. Try:

    python examples/job_queue.py 24                                   prints the most frequent words
    python examples/job_queue.py 40                                   prints one line, and then nothing more, for ever
    ray-snapshot run --exit-on deadlock examples/job_queue.py 40      says why, and how to mend it

What to look at in the report: the two lines that wait for each other, and the places that they name.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import ray

PROGRESS_EVERY = 25


@ray.remote
class Dispatcher:
    """Hands out the files, and shows how far the work is."""

    def __init__(self, paths: list[str], store: Any) -> None:
        self.waiting = list(paths)
        self.store = store
        self.done: set[str] = set()

    def next_job(self) -> str | None:
        return self.waiting.pop() if self.waiting else None

    def finished(self, path: str) -> None:
        self.done.add(path)
        if len(self.done) % PROGRESS_EVERY == 0:
            words = ray.get(self.store.total.remote())
            print(f"{len(self.done)} files, {words} words")


@ray.remote
class ResultStore:
    """Adds up the counts, and calls its listener back."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.listener: Any = None

    def listen(self, listener: Any) -> None:
        self.listener = listener

    def add(self, path: str, counts: Counter[str]) -> None:
        self.counts += counts
        ray.get(self.listener.finished.remote(path))

    def total(self) -> int:
        return self.counts.total()

    def top(self, n: int) -> list[tuple[str, int]]:
        return self.counts.most_common(n)


@ray.remote
class Worker:
    """Takes one file after the other until there are none."""

    def run(self, dispatcher: Any, store: Any) -> int:
        jobs = 0
        while path := ray.get(dispatcher.next_job.remote()):
            words = re.findall(r"[a-z]{4,}", Path(path).read_text("utf-8", "replace").lower())
            ray.get(store.add.remote(path, Counter(words)))
            jobs += 1
        return jobs


def main(files: int) -> None:
    paths = sorted(str(path) for path in Path(os.__file__).parent.glob("*.py"))[:files]
    store = ResultStore.remote()  # type: ignore[attr-defined]
    dispatcher = Dispatcher.remote(paths, store)  # type: ignore[attr-defined]
    ray.get(store.listen.remote(dispatcher))
    workers = [Worker.remote() for _ in range(3)]  # type: ignore[attr-defined]
    print(f"counting the words of {len(paths)} files")
    jobs = ray.get([worker.run.remote(dispatcher, store) for worker in workers])
    print(f"{sum(jobs)} files, {ray.get(store.total.remote())} words")
    print(", ".join(f"{word} {count}" for word, count in ray.get(store.top.remote(5))))


if __name__ == "__main__":
    ray.init()
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
