"""`ray-snapshot serve`: pages over histories and running systems, for a browser on this machine."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Annotated

import typer

from ray_snapshot.errors import SettingError


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(serve)


def serve(
    history: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[HISTORY]...",
            help="Folders of histories, or addresses in stores; without: the systems that run.",
            show_default=False,
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            help="Also the systems of this cluster, HOST:PORT; auto: of all on this machine.", show_default=False
        ),
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="The port; default: the first free one from 8266 on; 0: any.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Listen there; others than this machine's users can then connect.")
    ] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Answer to this host name, too: of a proxy, or of a forwarded port.")
    ] = None,
    root_path: Annotated[str, typer.Option(help="The folder into which a proxy puts the pages, like /snapshots.")] = "",
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Show histories and running systems in a browser.

    Until Ctrl-C. The address that is printed has a token, without which nothing is shown; RAY_SNAPSHOT_TOKEN sets it.
    """
    if missing := [name for name in ("starlette", "uvicorn", "prometheus_client") if find_spec(name) is None]:
        raise SettingError(f"serve needs {' and '.join(missing)}: pip install 'ray-snapshot[web]'")
    from ray_snapshot.web.live import Clusters
    from ray_snapshot.web.served import Served
    from ray_snapshot.web.server import Where, serve
    from ray_snapshot.web.server import show as open_page

    root = root_path.rstrip("/")
    if root and not root.startswith("/"):
        raise SettingError(f"--root-path {root_path!r}: it begins with /, like /snapshots")
    served = Served(root=root)
    for path in history or ():
        served.add(path)
    clusters = None
    if address is not None or not history:
        served.live = clusters = Clusters(served, None if address in (None, "auto") else address)
    try:
        if clusters is not None and not history:
            clusters.look()

        def tell(found: str) -> None:
            print(f"ray-snapshot: open {found}\nEnd it with Ctrl-C.", flush=True)
            if show:
                open_page(found)

        serve(served, Where(host, port, tuple(allow_host or ()), root), tell)
    finally:
        if clusters is not None:
            clusters.close()
            sys.stdout.flush()
