"""What a user has who has installed the package: its types, its examples with their data, its command."""

from __future__ import annotations

import shutil
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from installation import Installed

pytestmark = pytest.mark.nightly
ARGUMENTS = {"exactly_once_wordcount": ("--kills", "1", "--bytes", "200000"), "job_queue": ("10",)}
HERE = Path(__file__).parent

REFUSED = {
    'Unexpected keyword argument "evry" for "System"',
    'Argument "every" to "System" has incompatible type "list[int]"',
    'Argument "protocol" to "System" has incompatible type "Literal[\'two-phase\']"',
    'Argument 1 to "spawn" of "System" has incompatible type "type[Account]"',
    'cannot be "int"',
    'Argument "timeout" to "snapshot" of "System" has incompatible type "str"',
    'Unexpected keyword argument "protocol" for "watch"',
    '"Verdict" has no attribute "hold"',
    'Module has no attribute "nonsense"',
}


def test_a_users_program_passes_the_strict_type_checker_and_its_mistakes_do_not(
    installed: Installed, tmp_path: Path
) -> None:
    mypy = (installed.python, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"))
    fine = installed.run(*mypy, str(HERE / "checked_program.py"), cwd=tmp_path)
    assert (fine.stdout, fine.returncode) == ("Success: no issues found in 1 source file\n", 0), fine.stderr
    wrong = installed.run(*mypy, str(HERE / "refused_program.py"), cwd=tmp_path)
    errors = [line for line in wrong.stdout.splitlines() if ": error: " in line]
    assert {said for said in REFUSED if sum(said in line for line in errors) == 1} == REFUSED, wrong.stdout
    assert len(errors) == len(REFUSED)


def test_the_wheel_holds_every_module_and_the_data_of_the_examples(installed: Installed) -> None:
    root, packed = installed.sources, set(zipfile.ZipFile(installed.wheel).namelist())
    wanted = {"ray_snapshot/py.typed"}
    for folder, under in (("ray_snapshot", "ray_snapshot"), ("detectors", "ray_snapshot/detectors")):
        wanted |= {f"{under}/{path.relative_to(root / folder)}" for path in (root / folder).rglob("*.py")}
    for folder in ("spark_jobs", "examples"):
        wanted |= {f"ray_snapshot/{folder}/{path.name}" for path in (root / folder).glob("*.py")}
    assert wanted <= packed, wanted - packed


@pytest.mark.contract
@pytest.mark.ray
@pytest.mark.parametrize("example", ["bank", "exactly_once_wordcount", "job_queue"])
def test_an_example_runs_as_its_page_says_from_an_empty_folder(
    installed: Installed, tmp_path: Path, example: str
) -> None:
    """Also in a folder where none of our sources is."""
    done = installed.run(
        installed.python, "-m", f"ray_snapshot.examples.{example}", *ARGUMENTS.get(example, ()), cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout


PLAIN = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").getOrCreate()
print("rows:", spark.read.format("ray_snapshot").option("table", "machines").load(sys.argv[1]).count())
"""


@pytest.mark.parametrize("how", ["a wheel", "editable"])
def test_a_plain_script_finds_the_data_source(installed: Installed, tmp_path: Path, how: str) -> None:
    if how == "editable":
        environment = shutil.copytree(installed.folder, tmp_path / "venv", symlinks=True)
        (packages,) = environment.glob("lib/python*/site-packages")
        for folder in packages.glob("*ray_snapshot*"):
            shutil.rmtree(folder)
        pip = (sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), "install", "--quiet")
        assert installed.run(*pip, "--no-deps", "-e", str(installed.sources), cwd=tmp_path).returncode == 0
        installed = replace(installed, folder=environment)
    (tmp_path / "plain.py").write_text(PLAIN)
    ours = (installed.python, "-m", "ray_snapshot.cli", "history", "synth")
    assert installed.run(*ours, "--machines", "16", "--snapshots", "3", "--out", "h", cwd=tmp_path).returncode == 0
    done = installed.run(installed.python, "plain.py", "h", cwd=tmp_path)
    assert "rows: 51" in done.stdout, done.stderr[-2000:]
