"""The pictures of docs/howto/pages.md, of a real run: `make screenshots`; a browser is needed (chromium-headless-shell)."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
PROGRAM = Path(sys.executable).parent / "ray-snapshot"
BOUND_S = 300
PAGES = {"page-now": "/", "page-waits": "/h/jobs/s/latest/waits"}


@contextmanager
def served(history: Path) -> Iterator[str]:
    """The address of the pages over a history."""
    with subprocess.Popen(
        [PROGRAM, "serve", history, "--port", "0"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


def main() -> None:
    """Run the example that deadlocks, and take a picture of each page."""
    browser = shutil.which("chromium-headless-shell")
    if browser is None:
        sys.exit("no browser: apt-get install chromium-headless-shell")
    with tempfile.TemporaryDirectory() as folder:
        history = Path(folder) / "jobs"
        command = [PROGRAM, "run", "--exit-on", "deadlock", "--history", history, "examples/job_queue.py"]
        subprocess.run(command, cwd=ROOT, check=False, timeout=BOUND_S)
        with served(history) as address, sync_playwright() as playwright:
            started = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
            page = started.new_context(viewport={"width": 1180, "height": 760}).new_page()
            page.goto(address)
            page.wait_for_selector("main h1")
            base = page.url.rstrip("/")
            for name, path in PAGES.items():
                page.goto(base + path)
                page.wait_for_function("[...document.images].every(image => image.complete)")
                page.screenshot(path=IMAGES / f"{name}.png")
                print(IMAGES / f"{name}.png")
            started.close()


if __name__ == "__main__":
    main()
