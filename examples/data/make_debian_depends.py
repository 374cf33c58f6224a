"""Rebuild `debian-depends.tsv.gz`: the packages that Debian's `bash` leads to, and what each of them names.

Run `apt-get update` on Debian 12 (bookworm, amd64), then `python examples/data/make_debian_depends.py`.
Vertices are the packages reachable from `bash`; an edge leads from a package to each package that its fields
`Pre-Depends`, `Depends`, `Recommends` and `Suggests` name, every alternative of `a | b` included. Virtual
packages are left out: they have no entry of their own in the index. Needs nothing but the standard library
and `apt-helper`.
"""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

LISTS = Path("/var/lib/apt/lists")
INDEX = "*_debian_dists_bookworm_main_binary-amd64_Packages*"
RELEASE = "*_debian_dists_bookworm_InRelease"
FIELDS = ("Pre-Depends", "Depends", "Recommends", "Suggests")
ROOT = "bash"
OUTPUT = Path(__file__).with_name("debian-depends.tsv.gz")

Package = tuple[int, list[str]]
"""Installed size in KiB, and the names of other packages in the order of their mention."""


def main() -> int:
    index, release = _only(INDEX), _only(RELEASE)
    packages = _reachable(_packages(_read(index)), ROOT)
    _write(OUTPUT, packages, _release_line(_read(release)))
    edges = sum(len(named) for _, named in packages.values())
    print(f"{OUTPUT.name}: {len(packages)} packages, {edges} edges, {OUTPUT.stat().st_size} bytes")
    return 0


def _only(pattern: str) -> Path:
    found = [path for path in LISTS.glob(pattern) if path.is_file()]
    if len(found) != 1:
        sys.exit(f"{len(found)} files match {LISTS}/{pattern}, not one: run apt-get update on Debian 12, amd64")
    return found[0]


def _read(path: Path) -> str:
    """The text of an apt list, whatever apt compressed it with."""
    command = ["/usr/lib/apt/apt-helper", "cat-file", str(path)]
    return subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8").stdout


def _packages(index: str) -> dict[str, Package]:
    entries = [_fields(paragraph) for paragraph in index.split("\n\n") if paragraph.strip()]
    known = {entry["Package"] for entry in entries}
    return {entry["Package"]: (int(entry.get("Installed-Size", 0)), _named(entry, known)) for entry in entries}


def _fields(paragraph: str) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line)


def _named(entry: Mapping[str, str], known: set[str]) -> list[str]:
    """Each known package that the entry names, once; `a (>= 1) | b:any` names a and b."""
    mentions = (name for field in FIELDS for name in _names(entry.get(field, "")))
    return [name for name in dict.fromkeys(mentions) if name in known and name != entry["Package"]]


def _names(field: str) -> Iterator[str]:
    for mention in re.split(r"[,|]", field):
        if match := re.match(r"\s*([a-z0-9][a-z0-9+.-]*)", mention):
            yield match[1]


def _reachable(packages: Mapping[str, Package], root: str) -> dict[str, Package]:
    """The packages that `root` leads to, itself first, in breadth-first order."""
    found = {root: packages[root]}
    for name in (queue := [root]):
        for other in packages[name][1]:
            if other not in found:
                found[other] = packages[other]
                queue.append(other)
    return found


def _release_line(release: str) -> str:
    fields = _fields(release)
    return f"Debian {fields['Version']} ({fields['Codename']}), main, amd64, index of {fields['Date']}"


def _write(path: Path, packages: Mapping[str, Package], release: str) -> None:
    lines = [
        f"# {release}",
        f"# what {ROOT} leads to by {', '.join(FIELDS)}",
        "# package\tinstalled_kib\tnames",
    ]
    lines += [f"{name}\t{size}\t{' '.join(named)}" for name, (size, named) in packages.items()]
    # A fixed time of writing: the same index gives the same bytes.
    path.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode(), 9, mtime=0))


if __name__ == "__main__":
    sys.exit(main())
