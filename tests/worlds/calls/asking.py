"""Apps whose calls ask again and again, or are parked until a later call ends that: as values, and what they can come to.

A call that runs is where it is in its program: a loop that asks comes back to the same state however often it goes round,
and what counts the questions stops at a bound. Imports the standard library only; read `judging` next. Steps of programs:

    ("until", ((actor, method), ...))       while not (ray.get(actor.method.remote()) or ...), which are asked by turns
    ("get", actor, method), ("send", ...)   ray.get(actor.method.remote()), and without ray.get
    ("may",)                                goes on, or ends here
    ("when", x, least, most, change)        waits on a Condition for least <= self.x <= most; self.x += change; notify_all()
    ("tick", x, most)                       self.x += 1; from `most` on it makes no difference how much that is
    ("answer", x, least)                    return self.x >= least
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ray_snapshot.names import DRIVER

Step = tuple[Any, ...]
Program = tuple[Step, ...]


class Actor(NamedTuple):
    """Its methods, its state when it begins, and how many calls run in it at once."""

    methods: Mapping[str, Program]
    state: Mapping[str, int] = {}
    slots: int = 1
    has_threads: bool = False
    """It may have to record while a call is inside an action; others (one thread, a loop) record between steps."""
    times_out: bool = False
    """Its calls wait on a Condition with a timeout, again and again: what comes of one that is over is another."""


class Run(NamedTuple):
    """A call that has been made and whose reply has not been read; or the driver's program."""

    key: str
    """That of its caller, and where that called it; behind a `?` if a loop asks."""
    machine: str
    method: str
    caller: str
    is_read: bool
    phase: str = "flying"
    """Or running, replying (waits for a reply), parked, ready (it was parked, and looks again), ended."""
    at: int = 0
    turn: int = 0
    """Which question of a loop is next."""
    call: str = ""
    """The key of the call whose reply it waits for."""
    answer: bool = False


class State(NamedTuple):
    """Of a whole app at one moment; `runs` are sorted."""

    values: tuple[int, ...]
    runs: tuple[Run, ...]


class Move(NamedTuple):
    """A step of an app: accept, read (an answer that a loop goes on with), end (of a wait, of a loop), or another."""

    kind: str
    run: Run
    after: State
    is_idle: bool
    """It is of a round of a loop that asks: of it nothing comes but the answer."""


class App:
    """Actors, and the program of the driver."""

    def __init__(self, driver: Program, **actors: Actor) -> None:
        self.actors = actors
        self.programs = {(name, by): one for name, actor in actors.items() for by, one in actor.methods.items()}
        self.programs[DRIVER, ""] = driver
        values = [((name, by), value) for name, actor in actors.items() for by, value in actor.state.items()]
        self.place: dict[Step, int] = {key: at for at, (key, _) in enumerate(values)}
        """By actor and attribute: its place in `State.values`."""
        self.counts = {(key[0], step[1]) for key, one in self.programs.items() for step in one if step[0] == "tick"}
        """What only counts; `is_counted`: an answer depends on it."""
        answers = {(key[0], step[1]) for key, one in self.programs.items() for step in one if step[0] == "answer"}
        self.is_counted = bool(answers & self.counts)
        begin = Run(DRIVER, DRIVER, "", "", is_read=False, phase="running")
        self.begin = State(tuple(value for _, value in values), (begin,))

    def step_of(self, run: Run) -> Step:
        """What it does next, or is in."""
        return (*self.programs[run.machine, run.method], ("return",))[run.at]

    def plain_methods(self, machine: str) -> tuple[str, ...]:
        """Those that depend on its state alone."""
        own = [(by, {step[0] for step in steps}) for (name, by), steps in self.programs.items() if name == machine]
        return tuple(name for name, kinds in own if kinds <= {"tick", "answer"})

    def told(self, state: State, machine: str) -> tuple[tuple[str, int], ...]:
        """What a copy of an actor's state holds, but for what counts."""
        own = [place for place in self.place if place[0] == machine and place not in self.counts]
        return tuple((place[1], state.values[self.place[place]]) for place in own)

    def moves(self, state: State) -> Iterator[Move]:
        """Every step that can be taken now."""
        runs = {one.key: one for one in state.runs}
        for run in state.runs:
            is_round, step = "?" in run.key, self.step_of(run)
            if run.phase == "flying":
                here = sum(one.machine == run.machine and one.phase not in ("flying", "ended") for one in state.runs)
                if here < self.actors[run.machine].slots:
                    yield Move("accept", run, _with(state, run._replace(phase="running")), is_round)
            elif run.phase == "running":
                yield from self._acts(state, run, step, is_round)
            elif run.phase == "ready":
                yield Move("look", run, _with(state, run._replace(phase="running")), is_idle=False)
            elif run.phase == "replying" and (reply := runs[run.call]).phase == "ended":
                rest, onward = _with(state, reply._replace(is_read=False)), run._replace(phase="running", call="")
                if step[0] == "until" and not reply.answer:
                    again = onward._replace(turn=(run.turn + 1) % len(step[1]))
                    yield Move("read", run, _with(rest, again), is_idle=True)
                else:
                    yield Move("end", run, _with(rest, onward._replace(at=run.at + 1, turn=0)), is_round)

    def _acts(self, state: State, run: Run, step: Step, is_round: bool) -> Iterator[Move]:
        onward, ended = run._replace(at=run.at + 1), run._replace(phase="ended", at=0)
        at = self.place.get((run.machine, *step[1:2]), 0)
        match step:
            case ("until" | "get" | "send", *_):
                target, method = step[1][run.turn] if step[0] == "until" else step[1:]
                key = f"{run.key}?{run.turn}" if step[0] == "until" else f"{run.key}.{run.at}"
                call = Run(key, target, method, run.machine, is_read=step[0] != "send")
                caller = run._replace(phase="replying", call=key) if call.is_read else onward
                yield Move("call", run, _with(state, call, caller), is_round or step[0] == "until")
            case ("may",):
                yield Move("go on", run, _with(state, onward), is_round)
                yield Move("give up", run, _with(state, ended), is_round)
            case ("when", _, least, most, _) if not least <= state.values[at] <= most:
                yield Move("park", run, _with(state, run._replace(phase="parked")), is_idle=False)
            case ("when", _, _, _, change):
                parked = [one for one in state.runs if one.machine == run.machine and one.phase == "parked"]
                woken = (one._replace(phase="ready") for one in parked)
                yield Move("end", run, _with(_grown(state, at, change), onward, *woken), is_idle=False)
            case ("tick", _, most):
                yield Move("tick", run, _with(_grown(state, at, state.values[at] < most), onward), is_round)
            case ("answer", _, least):
                yield Move("answer", run, _with(state, ended._replace(answer=state.values[at] >= least)), is_round)
            case _:
                yield Move("return", run, _with(state, ended), is_round)


def _with(state: State, *runs: Run) -> State:
    """With these in place of those of their keys; without the ended ones that nobody reads."""
    rest = [one for one in state.runs if one.key not in {each.key for each in runs}]
    return state._replace(runs=tuple(sorted([*rest, *(one for one in runs if one.is_read or one.phase != "ended")])))


def _grown(state: State, at: int, change: int) -> State:
    return state._replace(values=(*state.values[:at], state.values[at] + change, *state.values[at + 1 :]))


class Truth:
    """All states of an app, and from which of them a schedule leads to what: backward from where that happens."""

    def __init__(self, app: App, most: int = 100_000) -> None:
        """Raises `ValueError` if it has more than `most` states."""
        self.app, self.states, numbers = app, [app.begin], {app.begin: 0}
        self.moves: list[list[tuple[Move, int]]] = []
        """By state: with the number of the state behind each."""
        self.before: list[set[int]] = [set()]
        self.leading: dict[tuple[str, str], set[int]] = {("", ""): set()}
        """By call and kind of move; by ("", ""): to anything but rounds of loops that ask."""
        for at, state in enumerate(self.states):
            self.moves.append([])
            for move in app.moves(state):
                if (after := numbers.setdefault(move.after, len(numbers))) == len(self.states):
                    self.states.append(move.after)
                    self.before.append(set())
                self.moves[at].append((move, after))
                self.before[after].add(at)
                self.leading.setdefault((move.run.key, move.kind), set()).add(at)
                self.leading["", ""] |= set() if move.is_idle else {at}
            if len(numbers) > most:
                raise ValueError(f"more than {most} states: make the app smaller")
        for leading in self.leading.values():
            stack = [*leading]
            while stack:
                more = self.before[stack.pop()] - leading
                leading.update(more)
                stack += more
