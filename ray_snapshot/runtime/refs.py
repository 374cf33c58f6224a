"""Which call answers a ref: Ray's own refs, with the call in the text that Ray keeps of where a ref was made.

Ray sends that text along with a ref, so each process that gets it knows the call. Imports nothing of ours.
"""

from __future__ import annotations

from typing import Any

import ray

_MARK = "ray-snapshot call "
"""Before the call in a ref's `call_site()`, which is empty unless `RAY_record_ref_creation_sites` is set."""


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
    site = f"{refs.call_site()}{_MARK}{call_id}"
    return ray.ObjectRef(refs.binary(), refs.owner_address(), site, False, refs.tensor_transport())
