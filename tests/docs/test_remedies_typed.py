"""What errors and reports tell people to type can be typed; of some that need no Ray, it helps."""

import ast
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from code_blocks import ROOT
from command_lines import EXTRAS, faults

BEFORE = ROOT / "tests" / "histories"
TRACED = "20261129T195914704092Z-314d7b-000001"
EXAMPLE = "ray_snapshot.examples.bank_without_ray"

REMEDIES = [
    ("show H zzz", r"the latest is (\S+);", "show H {}"),
    ("show H 20", r", (\S+) the first: give more", "show H {}"),
    ("list H --system zzz", r"there are: ([\w-]+)", "list H --system {}"),
    ("verdicts H --detector zzz", r"there are: ([\w-]+)", "verdicts H --detector {}"),
    ("sql H 'SELECT stat FROM machines'", r'Candidate bindings: "(\w+)"', "sql H 'SELECT {} FROM machines'"),
    ("sql H 'SELECT * FROM machine'", r"there is no table machine; a history has (\w+)", "sql H 'SELECT * FROM {}'"),
    ("report H --out x.txt", r"a file that ends in (\.html)", "report H --out x{}"),
    ("vacuum H --keep 5", r"like (\w+) or", "vacuum H --keep {} --dry-run"),
    (f"explore {EXAMPLE} --never deadlock", r"write MODULE(:)NAME", f"explore {EXAMPLE}{{}}bank --never deadlock"),
    (f"witness B {TRACED}", r"say (--module \w+) if", f"witness B {TRACED} {{}}"),
    (f"blame B {TRACED} --detector conservation", r"(--module \w+) if", f"blame B {TRACED} --detector conservation {{}}"),
]  # fmt: skip
"""What is typed, what is said about it, and what is typed then."""


@pytest.mark.parametrize(("wrong", "said", "right"), REMEDIES, ids=[wrong for wrong, _, _ in REMEDIES])
def test_what_an_error_says_is_to_be_done_helps(
    run: Callable[..., tuple[int, list[str], list[str]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wrong: str,
    said: str,
    right: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "machines_of_before", raising=False)
    shutil.copy(BEFORE / "machines_of_before.py", tmp_path)
    assert run("synth", "--machines", "16", "--snapshots", "3", "--out", "h")[0] == 0

    def typed(line: str) -> tuple[int, str]:
        code, out, err = run(*({"H": "h", "B": str(BEFORE / "before")}.get(word, word) for word in shlex.split(line)))
        return code, " ".join([*out, *err])

    code, told = typed(wrong)
    assert code in (2, 4) or "differs" in told, told
    found = re.search(said, told)
    assert found is not None, told
    assert typed(right.format(found[1]))[0] in (0, 1)


def texts(tree: ast.AST) -> Iterator[str]:
    """What a module may print: its strings that are no docstrings, with an X for what is filled in."""
    whole = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    docs = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    docs |= {part for node in whole for part in node.values}
    for node in whole:
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docs:
            yield node.value


def test_each_command_that_is_said_in_the_code_can_be_typed() -> None:
    said = [
        (path.name, line)
        for top in ("ray_snapshot", "detectors", "spark_jobs")
        for path in (ROOT / top).rglob("*.py")
        for text in texts(ast.parse(path.read_text("utf-8")))
        for line in re.findall(r"`((?:ray-snapshot|make) [^`]*)`|(pip install '[^']*')", text)
    ]
    lines = {(name, command or install) for name, (command, install) in said}
    assert len(lines) > 20, "nothing was found"
    whole = {one for one in lines for more in range(4) if not faults(one[1] + " X" * more)}  # some name a command only
    assert lines - whole == set()
    extras = {extra for _, line in lines for extra in re.findall(r"ray-snapshot\[(\w+)\]", line)}
    assert extras <= {*EXTRAS}
