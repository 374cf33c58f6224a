"""The facts of this machine: Ray, Java, py-spy, the folder of a history, and Ray clusters.

Changes nothing: what is written to see whether it can be written has no name, and is gone at once.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from ray_snapshot.addresses import StorePath, given, shown_address
from ray_snapshot.doctor import checks
from ray_snapshot.doctor.asking import Check
from ray_snapshot.doctor.checks import WARNING, ClusterFacts, Finding, Folder, TokenFacts
from ray_snapshot.errors import ClusterError, RaySnapshotError, SettingError, UnsupportedRayError
from ray_snapshot.limits import LIMITS

PROGRAM_S = 30.0
"""For another program (Java, py-spy)."""
IMPORT_S = 60.0
"""For what Ray or Arrow must be imported for: a busy machine takes a while."""
CLUSTERS_S = 90.0


def all_checks(address: str | None, history: str | None) -> list[Check]:
    """What is looked at, in the order in which it is told."""
    import ray_snapshot.spark_jobs.engine.java
    import ray_snapshot.unprepared.evidence  # noqa: F401 - so that no thread imports what another one is importing

    found = [
        Check("ray", ray, IMPORT_S),
        Check("java", java, PROGRAM_S, is_begun_early=True),
        Check("py-spy", stacks, PROGRAM_S, is_begun_early=True),
    ]
    if history is not None:
        found.append(Check("history", lambda: history_given(history), IMPORT_S))
    return [*found, Check("cluster", lambda: clusters(address), CLUSTERS_S)]


# ---- what is installed -------------------------------------------------------------------------------------------------


def installed(name: str) -> str | None:
    """The version of a package; None if it is not there."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def ray() -> Finding:
    """Ray, and whether calls can be followed with it."""
    try:
        import ray as library
    except Exception as error:  # whatever its own libraries raise
        return checks.ray(None, " ".join(f"{type(error).__name__}: {error}".split()))
    try:
        from ray_snapshot.instrument import shape

        shape.check()
    except UnsupportedRayError as error:
        return checks.ray(library.__version__, shape=str(error))
    return checks.ray(library.__version__)


def java() -> Finding:
    """The Java that Spark would get."""
    from ray_snapshot.spark_jobs.engine.java import look_for_java

    found, passed_over = look_for_java(seconds=PROGRAM_S / 3)
    return checks.java(found, passed_over, has_spark=installed("pyspark") is not None)


def stacks() -> Finding:
    """Py-spy, tried on this process: it is no child of py-spy's, as the processes of an app are not."""
    from ray_snapshot.unprepared.evidence import spy
    from ray_snapshot.unprepared.evidence import stacks as read

    if (program := spy()) is None:
        return checks.stacks(None)
    return checks.stacks(installed("py-spy") or "installed", read(program, os.getpid()).get("why", ""))


# ---- disks -------------------------------------------------------------------------------------------------------------


def folder_at(path: Path) -> Folder:
    """A folder, or the one that it would be made in."""
    path = Path(os.path.abspath(path.expanduser()))
    there = next(place for place in (path, *path.parents) if os.path.lexists(place))
    free = None
    try:
        free = shutil.disk_usage(there).free
        why = "it is no folder" if not there.is_dir() else why_not_writable(there)
    except OSError as error:
        why = error.strerror or str(error)
    return Folder(str(path), why, "" if there == path else str(there), free)


def why_not_writable(folder: Path) -> str:
    """Why no file can be made in it; "" if one can."""
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def history_given(text: str) -> Finding:
    """The history at a path, or at an address."""
    try:
        place = given(text, SettingError)
    except RaySnapshotError as error:
        return checks.history_in_store(shown_address(text), str(error), is_there=False)
    return history_in(place) if isinstance(place, StorePath) else history_at(place)


def history_in(place: StorePath) -> Finding:
    """A history in an object store."""
    from ray_snapshot.history import History, objects

    try:
        objects.check_writable(place)
        if not objects.is_any_below(place):
            return checks.history_in_store(str(place), "", is_there=False)
        History(place)
    except (RaySnapshotError, OSError) as error:
        return checks.history_in_store(str(place), str(error), is_there=False)
    return checks.history_in_store(str(place), "", is_there=True)


def history_at(path: Path) -> Finding:
    """The folder of a history."""
    found = folder_at(path)
    place = Path(found.path)
    if place.is_file():
        return checks.history(found, is_file=True, is_there=False)
    if found.made_in or found.why_not or not any(place.iterdir()):
        return checks.history(found, is_file=False, is_there=False)
    from ray_snapshot.history import History

    try:
        History(place)
    except RaySnapshotError as error:
        return checks.history(found, is_file=False, is_there=False, trouble=str(error))
    return checks.history(found, is_file=False, is_there=True)


# ---- Ray clusters ------------------------------------------------------------------------------------------------------


def clusters(address: str | None) -> Sequence[Finding]:
    """Ray's token, and each cluster that is meant: the one at that address, or at `RAY_ADDRESS`, or all of this machine."""
    try:
        from ray_snapshot.instrument import clusters as known
    except Exception:  # it is said of Ray itself
        return [Finding("cluster", WARNING, "none is asked: Ray cannot be used here", "see what is said of ray")]
    trouble, place = "", None
    try:
        place = known.token_place()
    except ClusterError as error:
        trouble = str(error)
    mode = os.environ.get("RAY_AUTH_MODE")
    given = known.address_given(address)
    origin = "" if given is None else "--address" if given == address else "RAY_ADDRESS"
    found = [cluster_at(one, origin) for one in ([given] if given is not None else known.alive())]
    asking = tuple(one.address for one in found if one.asks_for_token)
    return [checks.token(TokenFacts(place, mode, trouble, asking)), *checks.clusters(found)]


def cluster_at(address: str, origin: str = "") -> ClusterFacts:
    """One cluster, asked."""
    from ray_snapshot.instrument import cluster_shape
    from ray_snapshot.instrument.clusters import authorized, look

    try:
        told = look(address)
        with authorized(address) as store:
            python = cluster_shape.python_known(store, LIMITS.cluster_answer_s)
    except ClusterError as error:
        remedy = getattr(error, "remedy", "")
        why = str(error).removesuffix(f": {remedy}") if remedy else str(error)
        asks = getattr(error, "asks_for_token", False)
        return ClusterFacts(address, origin, asks_for_token=asks, why_not=why, remedy=remedy)
    is_ours = python is None or cluster_shape.is_python_let_in(python)
    return ClusterFacts(address, origin, told.systems, told.asks_for_token, python=python, is_python_as_ours=is_ours)
