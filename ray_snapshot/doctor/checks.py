"""What each fact about a machine means for ray-snapshot: a finding, with the remedy. Pure: values in, findings out.

A problem: snapshots cannot be taken or kept here, or not what was asked for. A warning: a part of it will not work, or was
not tested. All else is ok.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ray_snapshot.tested import RANGE, RAYS, minor

OK, WARNING, PROBLEM = "ok", "warning", "problem"

OLDEST_PYTHON = (3, 11)
OLDEST_JAVA = 17

FULL = 0.95
"""From here on Ray writes no more objects to a disk."""
LITTLE = 1 << 30
TOO_LITTLE = 100 << 20
"""Bytes free where a history is to grow."""

LONGEST_SOCKET = 107
"""Bytes of the path of a socket, on Linux."""
_SOCKET = "/session_2026-01-01_00-00-00_000000_0000000/sockets/plasma_store"

OBJECT_STORE_SHARE = 0.3
"""Of the memory: so much Ray wants for its object store, if nobody says otherwise."""
OBJECT_STORE_CAP = 10_000_000_000
"""Bytes of shared memory with which Ray makes do in any case."""

INSTALL_SPARK = "pip install 'ray-snapshot[spark,java]'"
INSTALL_JAVA = "pip install 'ray-snapshot[java]', or install a JDK of 17 or newer and point JAVA_HOME at it"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check has found."""

    check: str
    state: str
    """`OK`, `WARNING` or `PROBLEM`."""
    found: str
    remedy: str = ""


# ---- Python and what is installed ----------------------------------------------------------------------------------------


def python(version: Sequence[int], home: str) -> Finding:
    """`home`: the environment that it runs from."""
    text = f"{'.'.join(map(str, version[:3]))}, in {home}"
    if tuple(version[:2]) < OLDEST_PYTHON:
        return Finding("python", PROBLEM, text, "use Python 3.11 or newer")
    return Finding("python", OK, text)


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


def libraries(requirements: Iterable[str], installed: Callable[[str], str | None]) -> Finding:
    """`requirements`: as a package's metadata has them; `installed`: the version of a package, None without it."""
    wrong, count = [], 0
    for text in requirements:
        name, told = _unmet(text, installed)
        count += 1
        if told:
            wrong.append((name, told, text))
    if wrong:
        needed = " ".join(f"'{text}'" for _, _, text in wrong)
        said = ", ".join(f"{name} {told}" for name, told, _ in wrong)
        return Finding("libraries", PROBLEM, said, f"pip install {needed}")
    text = f"{count} packages, in versions that fit" if count else "which are needed is not recorded here"
    return Finding("libraries", OK, text)


def _unmet(requirement: str, installed: Callable[[str], str | None]) -> tuple[str, str]:
    """The name of what is required, and what is wrong with it, if anything."""
    from packaging.requirements import Requirement
    from packaging.version import InvalidVersion, Version

    wanted = Requirement(requirement)
    version = installed(wanted.name)
    if version is None:
        return wanted.name, "is not installed"
    try:
        fits = wanted.specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:  # of somebody's own build
        fits = True
    return wanted.name, "" if fits else f"{version} ({wanted.specifier} is needed)"


def spark(requirements: Iterable[str], installed: Callable[[str], str | None]) -> Finding:
    """`requirements`: those of the extra `spark`."""
    needs = "`analyze` and the Spark data source need it, nothing else does"
    version = installed("pyspark")
    if version is None:
        return Finding("spark", WARNING, f"pyspark is not installed; {needs}", INSTALL_SPARK)
    wrong = [f"{name} {told}" for name, told in (_unmet(text, installed) for text in requirements) if told]
    if wrong:
        return Finding("spark", WARNING, f"{', '.join(wrong)}; {needs}", INSTALL_SPARK)
    return Finding("spark", OK, f"pyspark {version}")


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


def shared_memory(free: int | None, memory: int | None) -> Finding:
    """Bytes free in /dev/shm, None where there is no such thing; bytes of memory that Ray counts with."""
    if free is None or memory is None:
        return Finding("shared memory", OK, "this system has no /dev/shm, and Ray uses none")
    wanted = min(int(OBJECT_STORE_SHARE * memory), OBJECT_STORE_CAP)
    text = f"{size(free)} free in /dev/shm"
    if free < wanted:
        remedy = (
            f"delete files in /dev/shm, or give the container more: `docker run --shm-size {size(wanted, spaced=False)}`;"
            " in Kubernetes an emptyDir with medium Memory at /dev/shm"
        )
        return Finding("shared memory", WARNING, f"{text}; Ray wants {size(wanted)}, and will use a disk", remedy)
    return Finding("shared memory", OK, f"{text}; Ray wants {size(wanted)}")


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder, as it was found."""

    path: str
    why_not: str = ""
    """Why nothing can be written there."""
    made_in: str = ""
    """The folder that it would be made in, if it is not there."""
    free: int | None = None
    total: int | None = None
    """Bytes of its disk."""


def folder(check: str, found: Folder, remedy: str) -> Finding:
    """A folder in which a history may grow; `remedy` where nothing can be written."""
    if found.why_not:
        return Finding(
            check, PROBLEM, f"nothing can be written to {found.made_in or found.path}: {found.why_not}", remedy
        )
    text = f"{found.path} can be written to" if not found.made_in else f"{found.path} can be made"
    if found.free is None:
        return Finding(check, OK, text)
    text += f", {size(found.free)} free"
    if found.free < TOO_LITTLE:
        return Finding(check, PROBLEM, text, "free some space, or choose another disk")
    if found.free < LITTLE:
        return Finding(
            check, WARNING, text, "free some space: a history grows with each snapshot (`ray-snapshot history vacuum`)"
        )
    return Finding(check, OK, text)


def history(found: Folder, *, is_file: bool, is_there: bool, trouble: str = "") -> Finding:
    """The folder of a history. `is_there`: it has snapshots; `trouble`: why these cannot be read."""
    if is_file:
        return Finding("history", PROBLEM, f"{found.path} is a file", "a history is a folder: choose another name")
    if trouble:
        return Finding(
            "history", PROBLEM, trouble, "see what `ray-snapshot history verify` says, or choose another folder"
        )
    told = folder("history", found, "choose another folder, or have its rights changed")
    if found.why_not:
        return told
    what = "a history" if is_there else "no history yet"
    return Finding("history", told.state, f"{told.found}; {what}", told.remedy)


def history_in_store(address: str, trouble: str, *, is_there: bool) -> Finding:
    """A history in an object store; `trouble`: why it cannot be used."""
    if trouble:
        remedy = "see docs/howto/stores.md for what a store needs"
        return Finding("history", PROBLEM, trouble if address in trouble else f"{address}: {trouble}", remedy)
    what = "a history" if is_there else "no history yet"
    return Finding("history", OK, f"{address} can be written to; {what}")


def temporary(found: Folder) -> Finding:
    """Ray's own folder, in which it keeps its sessions."""
    remedy = "set RAY_TMPDIR to a short folder that is yours"
    name = "temporary folder"
    if found.why_not:
        return Finding(
            name, PROBLEM, f"nothing can be written to {found.made_in or found.path}: {found.why_not}", remedy
        )
    if (length := len(f"{found.path}{_SOCKET}".encode())) > LONGEST_SOCKET:
        text = f"{found.path} is too long a path: Ray's sockets there would have {length} bytes, and may have {LONGEST_SOCKET}"
        return Finding(name, PROBLEM, text, "set RAY_TMPDIR to a short folder, such as /tmp")
    text = f"{found.path} can be written to"
    if found.free is None or not found.total:
        return Finding(name, OK, text)
    text += f", {size(found.free)} free"
    if 1 - found.free / found.total >= FULL:
        return Finding(
            name,
            WARNING,
            f"{text}, and the disk is {100 * (1 - found.free / found.total):.0f} % full: from {FULL * 100:.0f} % on Ray"
            " writes no objects to it",
            f"free some space (old sessions in {found.path}), or set RAY_TMPDIR to a folder on another disk",
        )
    return Finding(name, OK, text)


def key(place: str, *, is_there: bool, trouble: str = "", why_not: str = "") -> Finding:
    """The key of checkpoints. `trouble`: what is wrong with the one that is there; `why_not`: why none can be made."""
    if trouble:
        return Finding("key", WARNING, f"{trouble}; checkpoints need it", f"make the key right, or remove {place}")
    if is_there:
        return Finding("key", OK, f"the key of checkpoints is in {place}")
    if why_not:
        text = f"the key of checkpoints cannot be made in {place}: {why_not}; `checkpoint=True` needs it"
        return Finding("key", WARNING, text, "set RAY_SNAPSHOT_KEY, or XDG_CONFIG_HOME to a folder that is yours")
    return Finding("key", OK, f"the first checkpoint will make one in {place}")


def size(count: int, *, spaced: bool = True) -> str:
    """Bytes for a person, or for an option of a command."""
    value, unit = float(count), "B"
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if value < 1_000 or unit == "TB":
            break
        value /= 1_000
    text = f"{value:.0f}" if value >= 10 or unit == "B" else f"{value:.1f}"
    return f"{text} {unit}" if spaced else f"{-(-value // 1):.0f}{unit[:1].lower()}"


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
