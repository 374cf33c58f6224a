"""The blocks of code on the pages of the site, and the marks above them; `docs/contributing.md` says what each means."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

_BLOCK = re.compile(r"((?:^<!-- [^\n]*? -->\n)*)^```(\{?[\w-]*\}?)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_MARK = re.compile(r"<!-- (file|exit code|at night|not run): ([^\n]*?) -->")
_OF_PAGE = re.compile(r"^<!-- (own process|python at night|tested by): (.*?) -->$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One block of a page."""

    page: str
    line: int
    """Of its first line of code."""
    language: str
    code: str
    marks: dict[str, str]

    @property
    def place(self) -> str:
        return f"docs/{self.page}.md:{self.line}"

    @property
    def is_directive(self) -> bool:
        """Whether it is no code, but an order to Sphinx."""
        return self.language.startswith("{")


@dataclass(frozen=True)
class Page:
    """A page with its blocks, in their order."""

    name: str
    text: str
    blocks: tuple[Block, ...]
    marks: dict[str, str]


def pages() -> dict[str, Page]:
    """Every page of the site, by its name without `.md`."""
    found = {}
    for path in sorted(DOCS.rglob("*.md")):
        name = str(path.relative_to(DOCS).with_suffix(""))
        text = path.read_text(encoding="utf-8")
        found[name] = Page(name, text, tuple(_blocks(name, text)), dict(_OF_PAGE.findall(text)))
    return found


def _blocks(page: str, text: str) -> Iterator[Block]:
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start(3)) + 1
        yield Block(page, line, found[2], found[3], dict(_MARK.findall(found[1])))


def shown(block: Block) -> Iterator[tuple[str, str]]:
    """Of a `console`: each command behind `$`, and what stands below it."""
    for part in re.split(r"^\$ ", block.code, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        while command.endswith("\\"):
            more, _, output = output.partition("\n")
            command = command[:-1] + more
        yield command, output


def typed(block: Block) -> list[str]:
    """The commands of a block for a shell."""
    if block.language == "console":
        return [command for command, _ in shown(block)]
    return [line for line in re.sub(r"\\\n\s*", "", block.code).splitlines() if line.strip()]
