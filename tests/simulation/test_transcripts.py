"""What happens, to be read: scripted runs, their steps and what was recorded, as plain text under `transcripts/`.

A difference fails. To accept one that you can explain: `REWRITE_TRANSCRIPTS=1 pytest tests/simulation/test_transcripts.py`.
"""

import os
from collections.abc import Iterable
from pathlib import Path

import pytest
from worlds.mail.behaviours import Script
from worlds.mail.machines import Create, Send
from worlds.mail.schedules import check_quiet, run_script
from worlds.mail.theorem import check_run
from worlds.mail.world import World

from ray_snapshot.cli import main
from ray_snapshot.simulation.mail.oracle import RecordedSnapshot

FOLDER = Path(__file__).parent / "transcripts"


def assert_transcript(name: str, lines: Iterable[str]) -> None:
    path = FOLDER / f"{name}.txt"
    text = "\n".join(lines) + "\n"
    if os.environ.get("REWRITE_TRANSCRIPTS"):
        path.write_text(text)
    assert path.exists(), f"no transcript {path.name}: write it with REWRITE_TRANSCRIPTS=1"
    assert text == path.read_text(), f"{path.name} differs; if you can explain it, REWRITE_TRANSCRIPTS=1"


def told(recorded: RecordedSnapshot) -> list[str]:
    lines = ["", f"snapshot {recorded.number}"]
    lines += [f"  {name:<12} {' '.join(map(str, state)) or '-'}" for name, state in sorted(recorded.states.items())]
    for (source, target, kind), messages in sorted(recorded.channels.items()):
        for number, method, args in messages:
            lines.append(f"  {f'{source}->{target}':<12} {kind} {number}: {method} {args}")
    lines += [f"  {f'{creator}->{child}':<12} creation" for creator, child in sorted(recorded.creations)]
    return lines


def finish(name: str, world: World, *script: str) -> list[RecordedSnapshot]:
    """Run the script, check the run, compare the transcript; returns the snapshots."""
    world.trace = []
    run_script(world, script)
    check_run(world.log, world.central.completed, world.states())
    check_quiet(world)
    snapshots = sorted(world.central.completed, key=lambda one: one.number)
    assert_transcript(name, [*world.trace, *(line for recorded in snapshots for line in told(recorded))])
    return snapshots


def script(unasked: tuple[str, ...] = (), **sends: Send | Create | tuple[Send | Create, ...]) -> Script:
    pairs = ((event, one if isinstance(one, tuple) else (one,)) for event, one in sends.items())
    return Script(tuple(pairs), unasked)


def test_the_example_run_of_three_processes() -> None:
    """Started by P1 after B; H sends to D over C21 in front of P2's marker, and P1 has recorded already."""
    world = World(
        {
            "P1": ("P1", script(("A", "B", "C", "E"), A=Send("P2", "F", "from A"), C=Send("P3", "J", "from C")), ()),
            "P2": ("P2", script(("H",), H=Send("P1", "D", "from H")), ()),
            "P3": ("P3", script(("I",), I=Send("P2", "G", "from I")), ()),
        },
        is_atomic=True,
    )
    world.connect_all()
    for host in ("P1", "P2", "P3"):
        run_script(world, [f"flush {host}"])
    run_script(world, [f"deliver {one} {other}" for one in world.hosts for other in world.hosts if one != other])
    (snapshot,) = finish(
        "example_run",
        world,
        *("act P1 1", "flush P1", "deliver P1 P2", "accept P2"),  # A -> F
        *("act P3 1", "flush P3", "deliver P3 P2", "accept P2"),  # I -> G
        *("act P1 2", "snapshot P1", "tell request P1", "record P1", "flush P1"),  # B, and P1 starts
        *("deliver P1 P3", "record P3", "flush P3"),  # the marker to P3 is quick; that to P2 takes its time
        *("act P1 3", "flush P1", "deliver P3 P1"),  # C; P3's marker comes to P1, which has recorded
        *("act P2 1", "flush P2", "deliver P2 P1", "accept P1"),  # H -> D
        *("deliver P3 P2", "record P2", "flush P2"),  # P2's first marker
        *("deliver P1 P2", "deliver P2 P1", "deliver P2 P3"),  # the last three markers
        *("act P1 4", "deliver P1 P3", "accept P3"),  # E; C -> J
        "calm",
    )
    assert snapshot.states == {"P1": ("A", "B"), "P2": ("F", "G", "H"), "P3": ("I",)}
    assert snapshot.channels == {("P2", "P1", "mail"): [(1, "D", "from H")]}
    assert world.states() == {"P1": ("A", "B", "C", "D", "E"), "P2": ("F", "G", "H"), "P3": ("I", "J")}


def test_born_during_the_snapshot() -> None:
    """Trap 3: W spawns N on a new host and sends it work, then records; nobody knew of N or its host."""
    world = World(
        {
            "W": ("HW", script(("go",), go=(Create("N", "HN", script(), ()), Send("N", "works", 1))), ()),
            "X": ("HX", script(), ()),
        },
        is_atomic=True,
    )
    (snapshot,) = finish(
        "born_during_the_snapshot",
        world,
        *("snapshot", "tell request HX", "record HX", "copy HX", "report HX 1", "tell part 1"),
        *("act W 1", "tell request HW", "record HW", "copy HW", "report HW 1", "tell part 1"),
        *("flush HW", "deliver HW HN", "record HN", "copy HN", "birth HN", "accept HN"),
        *("tell register HN", "tell welcome HN", "report HN 1", "tell part 1"),
        "calm",
    )
    assert snapshot.creations == {("W", "N")}
    assert snapshot.channels == {("W", "N", "mail"): [(1, "works", 1)]}


TOPOLOGY = """# three machines in a ring, and one channel back
3
N1 10
N2 5
N3 0
N1 N2
N2 N3
N3 N1
N2 N1
"""

EVENTS = """send N1 N2 4
snapshot N2
send N1 N2 1
tick 2
send N2 N1 3
snapshot N1
tick
send N1 N2 2
"""

SHORT = """send N1 N2 4
snapshot N2
send N2 N1 5
"""

SCHEDULE = """{"op": "send", "source": "N1", "target": "N2", "tokens": 4}
{"op": "snapshot", "machine": "N1"}
{"op": "send", "source": "N1", "target": "N2", "tokens": 1}
{"op": "deliver", "source": "N1", "target": "N2"}
{"op": "send", "source": "N2", "target": "N1", "tokens": 6}
{"op": "deliver", "source": "N1", "target": "N2"}
{"op": "deliver", "source": "N2", "target": "N3"}
{"op": "deliver", "source": "N2", "target": "N1"}
{"op": "deliver", "source": "N3", "target": "N1"}
"""


FILES = {"topology": TOPOLOGY, "events": EVENTS, "short": SHORT, "schedule": SCHEDULE}


@pytest.mark.contract
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("simulate_events", ["--events", "events", "--seed", "3"]),
        ("simulate_schedule", ["--schedule", "schedule"]),
        ("simulate_every_order", ["--events", "short", "--exhaustive"]),
    ],
)
def test_simulate_prints(
    name: str, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for file, text in FILES.items():
        (tmp_path / file).write_text(text)
    assert main(["simulate", "--topology", "topology", *arguments]) == 0
    assert_transcript(name, capsys.readouterr().out.splitlines())
