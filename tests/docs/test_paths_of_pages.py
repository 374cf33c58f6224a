"""Files that name a page name one that is there; the site is built without a warning and asks nothing of a network."""

import re
import sys
from pathlib import Path

import pytest
from clean import ran

from ray_snapshot.schema import TABLES

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"(?<![\w./-])docs/[\w/-]+\.(?:md|py|svg|png|topology|events)")
ASSET = re.compile(
    r"""(?:<(?:script|img|iframe|source|audio|video|embed|object)\b[^>]*?\s(?:src|data|srcset)=|<link\b[^>]*?\shref=|@import\s+(?:url\()?|url\()\s*["']?(?:https?:)?//""",
    re.IGNORECASE,
)


@pytest.mark.contract
def test_every_page_that_a_file_names_is_there() -> None:
    listed = ran("git", "ls-files", "-z", cwd=ROOT)
    missing = set()
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path.suffix in (".py", ".md", ".txt", ".toml", ".topology", ".events") or path.name == "Makefile":
            found = NAMED.findall(path.read_text(encoding="utf-8")) if path.exists() else []
            missing |= {(name, page) for page in found if not (ROOT / page).exists()}
    assert missing == set()


def test_every_table_and_column_has_a_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    from meanings import ROWS, meaning_of

    assert ROWS.keys() == TABLES.keys()
    assert all(meaning_of(table, name) for table, schema in TABLES.items() for name in schema.names)


@pytest.fixture(scope="module")
def site() -> Path:
    """The site, built as `make docs` builds it."""
    order = re.search(r"^docs: .*\n\t\$\(BIN\)/python (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert order is not None
    done = ran(sys.executable, *order[1].split(), cwd=ROOT, seconds=1_800.0)
    assert (done.returncode, done.stderr) == (0, "")
    return ROOT / "build" / "site"


@pytest.mark.contract
@pytest.mark.nightly
def test_the_site_is_built_without_a_warning_and_asks_nothing_of_a_network(site: Path) -> None:
    files = [path for path in site.rglob("*") if path.suffix in (".html", ".css", ".js", ".svg")]
    assert len(files) > 60
    asking = {str(path.relative_to(site)) for path in files if ASSET.search(path.read_text(encoding="utf-8"))}
    assert asking == set()
    assert ASSET.search('<script async src="https://cdn.example.org/a.js">')


@pytest.mark.nightly
def test_the_reference_has_every_command_setting_error_and_column(site: Path) -> None:
    from ray_snapshot import Settings, errors
    from ray_snapshot.commands.exit_codes import OF

    page = {
        name: (site / f"reference/{name}.html").read_text("utf-8")
        for name in ("commands", "settings", "errors", "tables")
    }
    sections = set(re.findall(r'<section id="([\w-]+)">', page["commands"]))
    assert {*OF} <= {name.removeprefix("history-").removeprefix("ask-") for name in sections}
    assert [name for name in Settings.model_fields if f'id="{name.replace("_", "-")}"' not in page["settings"]] == []
    assert [name for name in vars(errors) if name.endswith("Error") and f">{name}<" not in page["errors"]] == []
    columns = {name for schema in TABLES.values() for name in schema.names}
    assert [name for name in columns if f">{name}<" not in page["tables"]] == []


@pytest.mark.contract
@pytest.mark.nightly
def test_pages_lead_to_the_glossary_once_for_each_term(site: Path) -> None:
    page = (site / "howto" / "wrapping.html").read_text(encoding="utf-8")
    assert len(re.findall(r'href="\.\./glossary\.html#term-deadlock"', page)) == 1
    heads = re.findall(r"<h[1-6]>.*?</h[1-6]>", page, re.DOTALL)
    assert len(heads) > 3
    assert not any("glossary.html#term" in head for head in heads)
