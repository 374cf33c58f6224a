"""Where each machine lives: of machines that were spawned together and numbered, a range and the hosts it is cut into."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from ray_snapshot.runtime.numbered import run_of, split


class _Block:
    """Machines that were numbered together."""

    def __init__(self, numbers: range, hosts: Sequence[str]) -> None:
        self.numbers = numbers
        self.starts: list[int] = []
        self.hosts: list[str] = []
        """From which number on: which host."""
        at = numbers.start
        for host, group in groupby(hosts):
            self.starts.append(at)
            self.hosts.append(host)
            at += sum(1 for _ in group)

    def host_of(self, number: int) -> str:
        return self.hosts[bisect_right(self.starts, number) - 1]


def _start(block: _Block) -> int:
    return block.numbers.start


class Places(Mapping[str, str]):
    """The host of each machine, by name; a name that is numbered takes no room of its own."""

    def __init__(self, named: Mapping[str, str]) -> None:
        self.named = dict(named)
        """Of those that are not numbered, or were not spawned together."""
        self.numbered: dict[str, list[_Block]] = {}
        """Of the others: by what stands before the number, in the order of the numbers."""

    def add(self, names: Sequence[str], hosts: Sequence[str]) -> None:
        """Machines that are not here yet."""
        numbers = run_of(names) if len(names) > 1 else None
        if numbers is None:
            self.named.update(zip(names, hosts, strict=True))
        else:
            insort(self.numbered.setdefault(split(names[0])[0], []), _Block(numbers, hosts), key=_start)

    def _block_of(self, name: str) -> tuple[_Block, int] | None:
        prefix, number = split(name)
        blocks = self.numbered.get(prefix, [])
        at = bisect_right(blocks, number, key=_start) - 1
        return (blocks[at], number) if at >= 0 and number in blocks[at].numbers else None

    def __getitem__(self, name: str) -> str:
        if (found := self.named.get(name)) is not None:
            return found
        if (block := self._block_of(name)) is None:
            raise KeyError(name)
        return block[0].host_of(block[1])

    def __contains__(self, name: object) -> bool:
        return name in self.named or (
            isinstance(name, str) and bool(self.numbered) and self._block_of(name) is not None
        )

    def __iter__(self) -> Iterator[str]:
        yield from self.named
        for prefix, blocks in self.numbered.items():
            for block in blocks:
                yield from (f"{prefix}-{number}" for number in block.numbers)

    def __len__(self) -> int:
        return len(self.named) + sum(len(block.numbers) for blocks in self.numbered.values() for block in blocks)
