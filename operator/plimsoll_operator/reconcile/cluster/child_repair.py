"""Makes a LogCluster's children, and restores one that another client deleted or changed.

Called by the LogCluster reconciler; `children` says which there are.  The templates of StatefulSets
are not restored here, but where restarts are reconciled (`stateful_set_repair`).
"""

from __future__ import annotations

from plimsoll_operator.kube.errors import Conflict, NotFound
from plimsoll_operator.kube.port import Object
from plimsoll_operator.kube.resources import kind_of
from plimsoll_operator.reconcile.reconcile_term import Term
from plimsoll_operator.reconcile.work_queue import Retry
from plimsoll_operator.status.occurrence import Occurrence


async def apply_child(term: Term, manifest: Object) -> Object:
    """Apply a child, unless it still belongs to an earlier object of the same name, or nobody has
    touched it since this term applied the same; returns it."""
    before = await _check_owner(term, manifest)
    name = _name(manifest)
    if before is not None and (
        term.applied.get(name) == manifest and term.unchanged_at.get(name) == _version(before)
    ):
        return before
    after = await term.kube.apply(kind_of(manifest), manifest)
    term.unchanged_at[name] = _version(after)
    if before is None:
        _made(term, manifest, "was deleted")
    elif _version(before) != _version(after):
        _made(term, manifest, "was changed")
    else:
        term.applied[name] = manifest
    return after


async def create_child(term: Term, manifest: Object) -> None:
    """Create a child, unless it is there; of one that is, only the labels are restored."""
    found = await _check_owner(term, manifest)
    if found is not None:
        await _label(term, manifest, found)
        term.applied[_name(manifest)] = manifest
        return
    try:
        await term.kube.create(kind_of(manifest), manifest)
    except Conflict:
        raise Retry(
            f"{manifest['metadata']['name']} was created concurrently", after_ms=500
        ) from None
    _made(term, manifest, "was deleted")


async def _label(term: Term, manifest: Object, found: Object) -> None:
    """Children are found by their labels."""
    wanted, shown = manifest["metadata"]["labels"], found["metadata"].get("labels") or {}
    if wanted.items() <= shown.items():
        return
    own = {**found["metadata"], "labels": {**shown, **wanted}}
    kind = {"apiVersion": manifest["apiVersion"], "kind": manifest["kind"]}
    await term.kube.replace(kind_of(manifest), {**kind, **found, "metadata": own})
    _made(term, manifest, "lost labels")


def _made(term: Term, manifest: Object, why: str) -> None:
    """A child that this term applied already, and that differs now, was changed by others."""
    kind, name = _name(manifest)
    if term.applied.get((kind, name)) == manifest:
        text = f"{kind} {name} {why} by another client; the operator restored it."
        key = f"restored-{kind}-{name}-{why}"
        term.tell(Occurrence(key=key, reason="Restored", message=text, warning=True))
    term.applied[kind, name] = manifest


def _version(found: Object) -> str:
    version: str = found["metadata"]["resourceVersion"]
    return version


def _name(manifest: Object) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]


async def _check_owner(term: Term, manifest: Object) -> Object | None:
    """The child, if it exists.  An earlier object's is waited out, never adopted."""
    meta = manifest["metadata"]
    try:
        found = await term.kube.get(kind_of(manifest), meta["namespace"], meta["name"])
    except NotFound:
        return None
    owners = [o["uid"] for o in found["metadata"].get("ownerReferences") or ()]
    if found["metadata"].get("deletionTimestamp") or owners != [meta["ownerReferences"][0]["uid"]]:
        raise Retry(f"{manifest['kind']} {meta['name']} of a deleted owner still exists")
    return found
