"""Which call answers a ref: Ray's own refs, with the call in the text that Ray keeps of where a ref was made.

Ray sends that text along with a ref, so each process that gets it knows the call. A ref of `ray.put` is marked the same way:
no call answers it, for its object is there. (Its id does not tell: Ray makes ids of that kind for what is still to come, too,
as a placement group's `ready()`.) Imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import ray

_MARK = "ray-snapshot call "
"""Before the call in a ref's `call_site()`, which is empty unless `RAY_record_ref_creation_sites` is set."""

_PUT = "ray-snapshot put"
"""At the end of the `call_site()` of a ref that `ray.put` has made."""


def is_ref(item: Any) -> bool:
    """Whether this is a ref of Ray's; its functions take generators and the values of compiled graphs, too."""
    return isinstance(item, ray.ObjectRef)


def graph_of(refs: Iterable[Any]) -> Any:
    """The compiled graph whose output one of these is; None if none is."""
    return next((ref._dag for ref in refs if type(ref).__module__ == _GRAPHS), None)


def stages_of(graph: Any) -> list[Any]:
    """The handles of the actors that run a compiled graph, as far as they can be read."""
    return list(getattr(graph, "worker_task_refs", ()))


def graph_timeout(graph: Any, timeout: float | None) -> float | None:
    """The bound of a `ray.get` of a compiled graph's output: that of the graph if none is given, and none below zero."""
    seconds = getattr(graph, "_get_timeout", None) if timeout is None else timeout
    return None if seconds is None or seconds < 0 else seconds


_GRAPHS = "ray.experimental.compiled_dag_ref"


def call_of(ref: Any) -> str | None:
    """The call that answers a ref, in whichever process it was made; None if nothing is known of it."""
    if not isinstance(ref, ray.ObjectRef):
        return None
    _, mark, call_id = ref.call_site().rpartition(_MARK)
    return call_id if mark else None


def tracked(refs: Any, call_id: str) -> Any:
    """A ref, or a list of refs, with the call that answers it; anything but a ref is left as it is."""
    if type(refs) is not ray.ObjectRef:
        return [tracked(ref, call_id) for ref in refs] if isinstance(refs, list) else refs
    return _marked(refs, f"{_MARK}{call_id}")


def put_ref(ref: Any) -> Any:
    """A ref that `ray.put` has made, marked; not one whose object its owner must send itself (`_tensor_transport`)."""
    return ref if type(ref) is not ray.ObjectRef or ref.tensor_transport() else _marked(ref, _PUT)


def is_put(ref: Any) -> bool:
    """Whether `ray.put` has made a ref, in whichever process: what waits for it gets a value soon, or an error."""
    return isinstance(ref, ray.ObjectRef) and ref.call_site().endswith(_PUT)


def apart(refs: Iterable[Any]) -> tuple[list[Any], list[str | None], list[Any]]:
    """(refs to wait for, the call that answers each, refs of `ray.put`, whose objects are there)."""
    waited, calls, there = [], [], []
    for ref in refs:
        call = call_of(ref)
        if call is None and is_put(ref):
            there.append(ref)
        else:
            waited.append(ref)
            calls.append(call)
    return waited, calls, there


def _marked(ref: Any, mark: str) -> Any:
    return ray.ObjectRef(ref.binary(), ref.owner_address(), f"{ref.call_site()}{mark}", False, ref.tensor_transport())
