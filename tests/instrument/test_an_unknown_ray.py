"""A Ray with internals of another shape: one clear error before anything is replaced. No cluster in here."""

import sys
from typing import Any

import pytest
import ray
import ray.actor
from clean import ran

import ray_snapshot as rs
from ray_snapshot.instrument import cluster_shape, shape
from ray_snapshot.instrument.hooks import attaching
from ray_snapshot.tested import RANGE


@pytest.fixture
def untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shape, "_replaced", {})


@pytest.mark.parametrize(
    ("owner", "name", "words"),
    [
        (ray.actor.ActorHandle, "_actor_method_call", "ActorHandle._actor_method_call has not the parameters"),
        (ray.actor, "_modify_class", "ray.actor._modify_class has not the parameters cls (it has: other)"),
        (ray._private.worker, "get", "ray._private.worker.get has not the parameters object_refs, timeout"),
        (ray.actor, "has_async_methods", "ray.actor.has_async_methods has not the parameters cls"),
    ],
)
def test_install_says_what_is_of_another_shape_and_replaces_nothing(
    monkeypatch: pytest.MonkeyPatch, untouched: None, owner: Any, name: str, words: str
) -> None:
    def changed(other: Any) -> None:
        """As a later Ray may have it."""

    monkeypatch.setattr(owner, name, changed)
    before = ray.init, ray.actor.ActorClass._remote
    with pytest.raises(rs.UnsupportedRayError, match=f"use Ray {RANGE}$") as raised:
        rs.install()
    assert str(raised.value).startswith(f"Ray {ray.__version__}: {words}")
    assert "\n" not in str(raised.value)
    assert (ray.init, ray.actor.ActorClass._remote) == before
    assert not shape._replaced


def test_a_name_that_is_gone_is_told_as_one_that_has_no_parameters(
    monkeypatch: pytest.MonkeyPatch, untouched: None
) -> None:
    monkeypatch.delattr(ray.actor.ActorClass, "_remote")
    with pytest.raises(rs.UnsupportedRayError, match=r"ActorClass._remote has not .* \(it has: none\)"):
        attaching.replace_ray()


def test_every_name_that_is_only_read_and_is_gone_is_told(monkeypatch: pytest.MonkeyPatch, untouched: None) -> None:
    for name in ("find_gcs_addresses", "_find_address_from_flag"):
        monkeypatch.delattr(cluster_shape.services, name)
    words = (
        r"there is no ray\._private\.services\.find_gcs_addresses, ray\._private\.services\._find_address_from_flag:"
    )
    with pytest.raises(rs.UnsupportedRayError, match=words):
        attaching.replace_ray()


@pytest.mark.contract
def test_run_tells_it_in_one_line_where_a_module_of_rays_is_missing() -> None:
    program = "import sys\nsys.modules['ray._private.auto_init_hook'] = None\nfrom ray_snapshot.cli import main\n"
    done = ran(sys.executable, "-c", f"import ray\n{program}sys.exit(main(['run', 'nothing.py']))")
    assert done.returncode == 2
    assert done.stderr.startswith(f"ray-snapshot: error: Ray {ray.__version__}: import of ray._private.auto_init_hook")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(("change", "ends"), [("", 0), ("del ray.actor.ActorClass._remote", 1)])
def test_a_ray_that_was_not_tested_is_told_in_a_line_and_followed_if_it_has_the_shape(change: str, ends: int) -> None:
    program = f"""
import ray
import ray.actor
import ray_snapshot as rs
ray.__version__ = "2.999.0"
{change}
for _ in range(2):
    try:
        rs.install()
    except rs.UnsupportedRayError as error:
        raise SystemExit(str(error))
"""
    done = ran(sys.executable, "-c", program)
    untested = f"ray-snapshot is tested with Ray {RANGE}; this is Ray 2.999.0\n"
    assert done.returncode == ends, done.stderr
    assert done.stderr == untested if ends == 0 else done.stderr.startswith("Ray 2.999.0: ActorClass._remote has not")
    assert done.stderr.count("\n") == 1
