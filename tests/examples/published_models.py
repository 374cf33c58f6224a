"""Two published models, written down once more from their text, as functions from a state to the next ones. They share no
code with ours.

`two_phase`: `TwoPhase.tla`; `lamport_mutex`: `LamportMutex.tla`; both of github.com/tlaplus/Examples at
32a32c7b0b97562da2dd4b2e55b7f81cd6fea2b9 (2026-05-14).
"""

from collections.abc import Callable, Iterator
from typing import Any


def reached(start: Any, following: Callable[[Any], Iterator[Any]]) -> set[Any]:
    found, todo = {start}, [start]
    while todo:
        for state in following(todo.pop()):
            if state not in found:
                found.add(state)
                todo.append(state)
    return found


def two_phase(names: list[str]) -> set[Any]:
    """States of `TwoPhase.tla`: (rmState, tmState, tmPrepared, msgs)."""

    def following(state: Any) -> Iterator[Any]:
        resources, manager, prepared, messages = state
        if manager == "init":
            for name in names:
                if name in messages:  # TMRcvPrepared
                    yield resources, manager, prepared | {name}, messages
            if prepared == set(names):  # TMCommit
                yield resources, "committed", prepared, messages | {"committed"}
            yield resources, "aborted", prepared, messages | {"aborted"}  # TMAbort
        for place, name in enumerate(names):

            def becomes(word: str, place: int = place) -> Any:
                return (*resources[:place], word, *resources[place + 1 :])

            if resources[place] == "working":
                yield becomes("prepared"), manager, prepared, messages | {name}  # RMPrepare
                yield becomes("aborted"), manager, prepared, messages  # RMChooseToAbort
            for word in ("committed", "aborted"):  # RMRcvCommitMsg, RMRcvAbortMsg
                if word in messages:
                    yield becomes(word), manager, prepared, messages

    return reached((("working",) * len(names), "init", frozenset(), frozenset()), following)


def lamport_mutex(processes: int, max_clock: int) -> set[Any]:
    """States of `LamportMutex.tla` within `ClockConstraint`: (clock, req, ack, network, crit)."""
    everyone = range(processes)

    def put(rows: Any, p: int, value: Any) -> Any:
        return (*rows[:p], value, *rows[p + 1 :])

    def broadcast(network: Any, p: int, message: Any) -> Any:
        return put(network, p, tuple(q if r == p else (*q, message) for r, q in enumerate(network[p])))

    def beats(requests: Any, p: int, q: int) -> bool:
        own, other = requests[p][p], requests[p][q]
        return bool(other == 0 or own < other or (own == other and p < q))

    def following(state: Any) -> Iterator[Any]:
        clocks, requests, acks, network, critical = state
        for p in everyone:
            if requests[p][p] == 0:  # Request
                asked = put(requests, p, put(requests[p], p, clocks[p]))
                yield clocks, asked, put(acks, p, frozenset({p})), broadcast(network, p, clocks[p]), critical
            if acks[p] == set(everyone) and all(beats(requests, p, q) for q in everyone if q != p):  # Enter
                yield clocks, requests, acks, network, critical | {p}
            if p in critical:  # Exit
                asked = put(requests, p, put(requests[p], p, 0))
                yield clocks, asked, put(acks, p, frozenset()), broadcast(network, p, "release"), critical - {p}
            for q in everyone:
                if not network[q][p]:
                    continue
                message, *rest = network[q][p]
                left = put(network, q, put(network[q], p, tuple(rest)))
                if message == "ack":  # ReceiveAck
                    yield clocks, requests, put(acks, p, acks[p] | {q}), left, critical
                elif message == "release":  # ReceiveRelease
                    yield clocks, put(requests, p, put(requests[p], q, 0)), acks, left, critical
                elif max(message, clocks[p]) + 1 <= max_clock:  # ReceiveRequest
                    asked = put(requests, p, put(requests[p], q, message))
                    answered = put(left, p, put(left[p], q, (*left[p][q], "ack")))
                    yield put(clocks, p, max(message, clocks[p]) + 1), asked, acks, answered, critical

    rows = ((0,) * processes,) * processes
    channels = (((),) * processes,) * processes
    return reached(((1,) * processes, rows, (frozenset(),) * processes, channels, frozenset()), following)
