"""What each fact about a machine means for ray-snapshot: a finding, with the remedy. Pure: values in, findings out.

A problem: snapshots cannot be taken or kept here, or not what was asked for. A warning: a part of it will not work, or was
not tested. All else is ok.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ray_snapshot.tested import RANGE, RAYS, minor

OK, WARNING, PROBLEM = "ok", "warning", "problem"

OLDEST_JAVA = 17

LITTLE = 1 << 30
TOO_LITTLE = 100 << 20
"""Bytes free where a history is to grow."""

INSTALL_JAVA = "pip install 'ray-snapshot[java]', or install a JDK of 17 or newer and point JAVA_HOME at it"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check has found."""

    check: str
    state: str
    """`OK`, `WARNING` or `PROBLEM`."""
    found: str
    remedy: str = ""


# ---- what is installed ---------------------------------------------------------------------------------------------------


def ray(version: str | None, trouble: str = "", shape: str = "") -> Finding:
    """`trouble`: why Ray cannot be imported; `shape`: what differs in its inner shape from what calls are followed by."""
    if version is None:
        return Finding("ray", PROBLEM, f"it cannot be imported: {trouble}", f"pip install 'ray=={RAYS[0]}'")
    if shape:
        return Finding(
            "ray", PROBLEM, f"{version}; {shape}", f"use one of Ray {RANGE}: calls of apps can be followed there"
        )
    if not minor(RAYS[-1]) <= minor(version) <= minor(RAYS[0]):
        return Finding("ray", WARNING, f"{version}, which was not tested", f"ray-snapshot is tested with Ray {RANGE}")
    return Finding("ray", OK, f"{version}, which is tested ({RANGE})")


def java(found: tuple[int, str] | None, passed_over: Sequence[str], *, has_spark: bool) -> Finding:
    """`found`: version and origin of the Java that Spark would get; `passed_over`: a line for each one that it would not."""
    others = "".join(f"; {line}" for line in passed_over)
    if found is not None:
        version, origin = found
        return Finding("java", OK, f"{version}, {origin}{others}")
    if not has_spark:
        return Finding("java", OK, f"none, and without Spark none is needed{others}")
    return Finding("java", WARNING, f"none of {OLDEST_JAVA} or newer; Spark needs one{others}", INSTALL_JAVA)


# ---- the machine -------------------------------------------------------------------------------------------------------


def stacks(version: str | None, why: str = "") -> Finding:
    """`version` of py-spy, None without it; `why` it could not read a process that is not its child."""
    needs = "`diagnose` without a name tells more with stacks"
    if version is None:
        return Finding("py-spy", WARNING, f"not installed; {needs}", "pip install 'ray-snapshot[stacks]'")
    if why == "refused":
        remedy = (
            "set the kernel's kernel.yama.ptrace_scope to 0, start the container with --cap-add SYS_PTRACE, or ask as the"
            " user who runs Ray, or as root"
        )
        return Finding("py-spy", WARNING, f"{version}, but it may not read other processes (ptrace); {needs}", remedy)
    if why:
        return Finding("py-spy", WARNING, f"{version}, but it fails: {why}", "run `py-spy dump --pid PID` to see more")
    return Finding("py-spy", OK, f"{version}, and it may read other processes (ptrace)")


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder, as it was found."""

    path: str
    why_not: str = ""
    """Why nothing can be written there."""
    made_in: str = ""
    """The folder that it would be made in, if it is not there."""
    free: int | None = None
    """Bytes."""


def history(found: Folder, *, is_file: bool, is_there: bool, trouble: str = "") -> Finding:
    """The folder of a history. `is_there`: it has snapshots; `trouble`: why these cannot be read."""
    if is_file:
        return Finding("history", PROBLEM, f"{found.path} is a file", "a history is a folder: choose another name")
    if trouble:
        remedy = "see what `ray-snapshot history verify` says, or choose another folder"
        return Finding("history", PROBLEM, trouble, remedy)
    if found.why_not:
        text = f"nothing can be written to {found.made_in or found.path}: {found.why_not}"
        return Finding("history", PROBLEM, text, "choose another folder, or have its rights changed")
    text = f"{found.path} can be made" if found.made_in else f"{found.path} can be written to"
    text += "" if found.free is None else f", {size(found.free)} free"
    text += "; a history" if is_there else "; no history yet"
    if found.free is not None and found.free < TOO_LITTLE:
        return Finding("history", PROBLEM, text, "free some space, or choose another disk")
    if found.free is not None and found.free < LITTLE:
        remedy = "free some space: a history grows with each snapshot (`ray-snapshot history vacuum`)"
        return Finding("history", WARNING, text, remedy)
    return Finding("history", OK, text)


def history_in_store(address: str, trouble: str, *, is_there: bool) -> Finding:
    """A history in an object store; `trouble`: why it cannot be used."""
    if trouble:
        remedy = "see docs/howto/stores.md for what a store needs"
        return Finding("history", PROBLEM, trouble if address in trouble else f"{address}: {trouble}", remedy)
    what = "a history" if is_there else "no history yet"
    return Finding("history", OK, f"{address} can be written to; {what}")


def size(count: int) -> str:
    """Bytes for a person."""
    value, unit = float(count), "B"
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if value < 1_000 or unit == "TB":
            break
        value /= 1_000
    return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"


# ---- Ray clusters ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What is known of a cluster that runs, or should."""

    address: str
    origin: str = ""
    """Who has named it: `--address` or `RAY_ADDRESS`; nobody, where it was found."""
    systems: tuple[str, ...] = ()
    asks_for_token: bool = False
    why_not: str = ""
    """Why it cannot be asked."""
    remedy: str = ""
    python: str | None = None
    """Of the cluster, where it was told."""
    is_python_as_ours: bool = True


@dataclass(frozen=True, slots=True)
class TokenFacts:
    """Ray's token, as this process finds it."""

    place: str | None = None
    """Where it is, None if there is none."""
    mode: str | None = None
    """What `RAY_AUTH_MODE` says."""
    trouble: str = ""
    asking: tuple[str, ...] = ()
    """The clusters that ask for it."""


def cluster(facts: ClusterFacts) -> Finding:
    """One cluster; one that was named must answer."""
    named = f" ({facts.origin})" if facts.origin else ""
    if facts.why_not:
        state = PROBLEM if facts.origin else WARNING
        remedy = facts.remedy or (f"start it, or name another one ({facts.origin})" if facts.origin else _LEFTOVER)
        return Finding("cluster", state, f"{facts.address}{named}: {facts.why_not}", remedy)
    if not facts.is_python_as_ours:
        return Finding(
            "cluster",
            PROBLEM if facts.origin else WARNING,
            f"{facts.address}{named} runs Python {facts.python}, and Ray lets only the same version in",
            "use the environment that it was started from",
        )
    token = ", asks for a token" if facts.asks_for_token else ""
    systems = f"systems: {', '.join(facts.systems)}" if facts.systems else "no system runs there"
    return Finding("cluster", OK, f"{facts.address}{named} answers, with the same Ray{token}; {systems}")


_LEFTOVER = "see whether it still works, or end it"


def clusters(facts: Sequence[ClusterFacts]) -> list[Finding]:
    """A line for each."""
    return [*map(cluster, facts)] or [Finding("cluster", OK, "none runs on this machine")]


def token(facts: TokenFacts) -> Finding:
    """Ray's token, and whether a cluster wants it."""
    asking = ", ".join(facts.asking)
    if facts.trouble:
        return Finding("token", PROBLEM, facts.trouble, "set RAY_AUTH_TOKEN, or RAY_AUTH_TOKEN_PATH to its file")
    if facts.place is not None:
        shown = f"asked for by {asking}" if asking else "no cluster here asks for it"
        return Finding("token", OK, f"from {facts.place}; {shown}")
    if (facts.mode or "").lower() == "token":
        text = "RAY_AUTH_MODE=token is set, and there is no token"
        return Finding("token", PROBLEM, text, "set RAY_AUTH_TOKEN, or unset RAY_AUTH_MODE")
    if asking:
        remedy = "set RAY_AUTH_TOKEN to the token that it was started with, or RAY_AUTH_TOKEN_PATH to its file"
        return Finding("token", WARNING, f"none, and {asking} asks for one", remedy)
    return Finding("token", OK, "none, and no cluster here asks for one")
