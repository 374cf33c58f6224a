"""`docs/howto/kuberay.md`, as far as it can be checked without Kubernetes: its manifests' fields, and what they run of ours."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from ray_snapshot import __version__
from ray_snapshot.cli import make_app
from ray_snapshot.tested import RAYS, minor

PAGE = (Path(__file__).parent.parent / "docs" / "howto" / "kuberay.md").read_text(encoding="utf-8")
BLOCKS = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)]
IMAGE = re.search(r"^FROM rayproject/ray:(\S+)-py311$", PAGE, re.MULTILINE)

ANY: dict[str, Any] = {}
"""A value, or a map with keys of the user's own."""


def fields(names: str) -> dict[str, Any]:
    return dict.fromkeys(names.split(), ANY)


CONTAINER = fields("name image resources") | {"volumeMounts": fields("name mountPath")}
POD = {"spec": fields("securityContext volumes") | {"containers": CONTAINER}}
GROUP = fields("groupName replicas minReplicas maxReplicas numOfHosts rayStartParams") | {"template": POD}
CLUSTER = fields("rayVersion enableInTreeAutoscaling autoscalerOptions") | {
    "authOptions": fields("mode secretName enableK8sTokenAuth"),
    "headGroupSpec": fields("rayStartParams serviceType") | {"template": POD},
    "workerGroupSpecs": GROUP,
}
JOB = {"rayClusterSpec": CLUSTER} | fields(
    "entrypoint entrypointNumCpus entrypointNumGpus entrypointResources runtimeEnvYAML activeDeadlineSeconds"
    " backoffLimit clusterSelector jobId metadata shutdownAfterJobFinishes submissionMode submitterPodTemplate suspend"
    " ttlSecondsAfterFinished"
)
RAY_JOB = fields("apiVersion kind") | {"metadata": fields("name namespace labels"), "spec": JOB}
"""Fields of `ray.io/v1` RayJob in KubeRay 1.7, and of the pods in it, by name; most that the page does not use are left out."""


def unknown(given: Any, known: dict[str, Any], path: str = "") -> list[str]:
    """The fields that are not known."""
    if isinstance(given, list):
        return [text for item in given for text in unknown(item, known, path)]
    if not known or not isinstance(given, dict):
        return []
    strange = [f"{path}.{name}" for name in given if name not in known]
    return strange + [
        text for name in given if name in known for text in unknown(given[name], known[name], f"{path}.{name}")
    ]


@pytest.fixture(scope="module")
def job() -> dict[str, Any]:
    (found,) = [block for block in BLOCKS if block.get("kind") == "RayJob"]
    assert isinstance(found, dict)
    return found


def test_every_field_is_one_that_kuberay_knows(job: dict[str, Any]) -> None:
    assert (job["apiVersion"], unknown(job, RAY_JOB)) == ("ray.io/v1", [])
    assert {name for block in BLOCKS if "kind" not in block for name in block} <= set(JOB)
    assert unknown({"spec": {"rayClusterSpec": {"headGroup": {}}}}, RAY_JOB) == [".spec.rayClusterSpec.headGroup"]


def test_what_kuberay_requires_is_there(job: dict[str, Any]) -> None:
    cluster = job["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    assert all(group["template"]["spec"]["containers"] for group in groups)
    assert all(
        group["groupName"] and group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
        for group in cluster["workerGroupSpecs"]
    )
    assert {type(value) for group in groups for value in group["rayStartParams"].values()} <= {str}


def test_the_version_of_ray_is_that_of_the_image_was_tested_and_can_ask_for_a_token(job: dict[str, Any]) -> None:
    version = job["spec"]["rayClusterSpec"]["rayVersion"]
    assert IMAGE is not None
    assert version == IMAGE[1] == RAYS[0]
    assert job["spec"]["rayClusterSpec"]["authOptions"]["mode"] == "token"
    assert minor(version) >= (2, 52)
    wheels = set(re.findall(r"ray_snapshot-(.*?)-py3-none-any\.whl", PAGE))
    assert wheels == {__version__}


def test_the_history_lies_on_a_volume_of_the_heads_pod_that_is_claimed_on_the_page(job: dict[str, Any]) -> None:
    words = shlex.split(job["spec"]["entrypoint"])
    history = Path(words[words.index("--history") + 1])
    pod = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    mounts = {Path(item["mountPath"]): item["name"] for item in pod["containers"][0]["volumeMounts"]}
    (name,) = [mounts[folder] for folder in history.parents if folder in mounts]
    claims = {item["name"]: item["persistentVolumeClaim"]["claimName"] for item in pod["volumes"]}
    (made,) = [block["metadata"]["name"] for block in BLOCKS if block.get("kind") == "PersistentVolumeClaim"]
    assert claims[name] == made


def parse(line: str) -> None:
    """Read a command as the command line does, and do nothing."""
    _, command, *arguments = shlex.split(line)
    group: Any = typer.main.get_command(make_app(command))
    group.commands[command].make_context(command, arguments).close()


def test_the_commands_of_ours_are_commands_with_such_options(job: dict[str, Any]) -> None:
    lines = re.findall(r"^kubectl exec .* -- (ray-snapshot .*)$", PAGE, re.MULTILINE)
    assert len(lines) == 3
    for line in (job["spec"]["entrypoint"], *lines):
        parse(line)
    with pytest.raises(Exception, match=r"(?i)no such option"):
        parse("ray-snapshot diagnose app --pod x")


def test_the_page_says_that_it_is_not_tested() -> None:
    assert "not tested on a cluster of Kubernetes" in " ".join(PAGE.split())
