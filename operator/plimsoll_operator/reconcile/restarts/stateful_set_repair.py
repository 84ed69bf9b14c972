"""Restores a broker's StatefulSet after another client changed it. Called by the restart
reconciler.

With the update strategy `OnDelete`, writing the template back restarts no broker. A dry run yields
the manifest with the API server's defaults; it is made only for a StatefulSet generation that was
not compared yet.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import STATEFUL_SETS
from plimsoll_operator.manifests.manifest_context import Context
from plimsoll_operator.manifests.statefulset import revision, stateful_set
from plimsoll_operator.reconcile.pass_result import PassResult
from plimsoll_operator.reconcile.reconcile_term import Term
from plimsoll_operator.reconcile.restarts.broker_pods import Compared, PodState
from plimsoll_operator.reconcile.shared.hibernation import stopped_of
from plimsoll_operator.status.events import Occurrence

logger = logging.getLogger("plimsoll.repairs")

IMMUTABLE = frozenset({"selector", "serviceName", "podManagementPolicy", "volumeClaimTemplates"})
"""Fields of a StatefulSet that the API server never lets change, so they are not compared. Volume
claims differ once `storage.size` has grown."""


class _ComparedSets(dict[str, Compared]):
    """StatefulSets as last found correct in this term, by uid."""


def compared_sets(term: Term) -> dict[str, Compared]:
    return term.kept(_ComparedSets, _ComparedSets)


async def restore(term: Term, result: PassResult, context: Context, one: PodState) -> PodState:
    """Restore the broker's StatefulSet if it differs from its manifest. Return the broker's state
    with the StatefulSet as it is then."""
    meta = one.owner["metadata"]
    wanted = revision(context.of_broker(one.broker_id))
    # A pod with a deleted claim is not stopped: its data would go.
    keeps = one.claim_deleted and bool(one.owner["spec"]["replicas"])
    replicas = int(keeps or one.broker_id not in stopped_of(term))
    now = (meta["generation"], wanted)
    known = compared_sets(term).get(meta["uid"])
    if known is not None and known.now == now and one.owner["spec"]["replicas"] == replicas:
        return one
    spec = {
        key: value
        for key, value in stateful_set(context, one.broker_id, replicas)["spec"].items()
        if key not in IMMUTABLE
    }
    if wanted not in (one.template_revision, one.pod_revision) or has_begun(term, one, wanted):
        # Between two revisions the template is the earlier one, as last seen correct.
        earlier = known is not None and known.revision == one.template_revision
        spec["template"] = known.template if known and earlier else one.owner["spec"]["template"]
    body = with_spec(one, **spec)
    right = (await term.kube.replace(STATEFUL_SETS, body, dry_run=True))["spec"]
    changed = sorted(key for key in spec if right.get(key) != one.owner["spec"].get(key))
    if changed:
        ours = changed == ["replicas"] and (term.image.hibernated or known is not None)
        one = replace(one, owner=await term.kube.replace(STATEFUL_SETS, body))
        if not ours or (known is not None and known.now[0] != meta["generation"]):
            _tell(term, result, one, changed)
    meta = one.owner["metadata"]
    compared_sets(term)[meta["uid"]] = Compared(
        now=(meta["generation"], wanted),
        revision=one.template_revision,
        template=one.owner["spec"]["template"],
    )
    return one


def has_begun(term: Term, one: PodState, wanted: str) -> bool:
    """Return True if a restart has begun into a revision that was granted but is no longer wanted:
    the StatefulSet's template already has it. The operator that wrote the template deletes the pod
    next, however late."""
    grant = term.image.grants.get(one.broker_id)
    return grant is not None and grant.revision == one.template_revision != wanted


def with_spec(one: PodState, **spec: object) -> Object:
    """Return the StatefulSet with the given fields of its spec replaced. The caller writes it under
    the resourceVersion that was read."""
    kind = {"apiVersion": STATEFUL_SETS.api_version, "kind": STATEFUL_SETS.kind}
    return {**kind, **one.owner, "spec": {**one.owner["spec"], **spec}}


def marked(one: PodState, annotation: str, value: str) -> Object:
    """Return the StatefulSet with the annotation set. The caller writes it under the
    resourceVersion that was read."""
    meta = one.owner["metadata"]
    annotations = {**(meta.get("annotations") or {}), annotation: value}
    return {**with_spec(one), "metadata": {**meta, "annotations": annotations}}


def _tell(term: Term, result: PassResult, one: PodState, changed: list[str]) -> None:
    name = one.owner["metadata"]["name"]
    fields = ", ".join(changed)
    text = f"StatefulSet {name}: {fields} changed by another client; the operator restored it."
    logger.warning("%s", text)
    key = f"restored-{name}-{one.owner['metadata']['generation']}"
    result.tell(Occurrence(key=key, reason="Restored", message=text, warning=True))
