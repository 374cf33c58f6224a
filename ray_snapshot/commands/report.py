"""`ray-snapshot report`: one snapshot of a history as a file to attach, or as Markdown to paste."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ray_snapshot.commands.files import write_file
from ray_snapshot.commands.history import System
from ray_snapshot.commands.options import HistoryPath, open_history

if TYPE_CHECKING:
    from ray_snapshot.reports.gathering import Report


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        context_settings={"ignore_unknown_options": True},  # -1 is no option
        help="Write a report of one snapshot, to attach to a ticket.\n\nWho waits for whom, what came before, what to do.",
    )(report)


def report(
    history: HistoryPath,
    snapshot: Annotated[
        str | None,
        typer.Argument(
            metavar="[SNAPSHOT]",
            help="An id, its beginning, latest, or -1, -2, ... (default: the newest alarm of the newest run, else latest).",
        ),
    ] = None,
    out: Annotated[
        list[Path] | None,
        typer.Option(
            help="The file to write, .html or .md; may be given twice. Without: report-SNAPSHOT.html in this folder."
        ),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Markdown with a Mermaid graph, to standard output.")
    ] = False,
    system: System = None,
) -> None:
    """The command `report`; `register` has its help text."""
    from ray_snapshot.errors import SettingError
    from ray_snapshot.reports.gathering import choose, gather

    files = list(out or ())
    for path in files:
        if path.suffix.lower() not in (*_PAGES, *_TEXTS):
            raise SettingError(f"--out {path}: a report is a file that ends in .html or .md")

    opened = open_history(history)
    snapshot_id = choose(opened, snapshot, system)
    if not files and not markdown:
        files = [Path(f"report-{re.sub(r'[^A-Za-z0-9_.-]', '_', snapshot_id)[:100]}.html")]
    found = gather(opened, snapshot_id, has_charts=any(path.suffix.lower() in _PAGES for path in files))
    if markdown:
        from ray_snapshot.reports.markdown import markdown as written

        print(written(found), end="")
    for path in files:
        write_file(path, _written(found, path))
        if not markdown:
            print(f"{found.headline} ({found.snapshot_id}): {path}")


_PAGES = (".html", ".htm")
_TEXTS = (".md",)


def _written(found: Report, path: Path) -> str:
    if path.suffix.lower() in _PAGES:
        from ray_snapshot.reports.page import html

        return html(found)
    from ray_snapshot.reports.markdown import markdown

    return markdown(found)
