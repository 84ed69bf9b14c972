"""What a LogCluster's spec leaves open, and what it was so far: read once in each term.

The brokers' release is what the status pinned, else what their StatefulSets were made as, and for a
new cluster the operator's own.  How brokers and the operator talk to each other is what the status
pinned, else decided from the log (`inside.decide`).  The status is read for these alone.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from plimsoll_core.cluster.record_versions import numbers
from plimsoll_core.release import RELEASE
from plimsoll_core.security.inside import InsideMode
from plimsoll_operator.api import labels
from plimsoll_operator.api.cluster_status import CertificatesStatus, Versions
from plimsoll_operator.kube.errors import ApiError, NotFound
from plimsoll_operator.kube.resources import LOG_CLUSTERS, STATEFUL_SETS
from plimsoll_operator.manifests import release_0_1
from plimsoll_operator.reconcile.reconcile_term import Term
from plimsoll_operator.reconcile.work_queue import Retry

Shape = TypeVar("Shape")


async def read(term: Term) -> None:
    """Know what the spec may leave open; raises Retry."""
    if term.pinned is not None:
        return
    try:
        status = await shown_status(term)
        versions = part_of(status, "versions", Versions)
        release = versions.pinned if versions else await _made(term)
    except ApiError as error:
        raise Retry(f"cannot read which release the brokers are pinned to: {error}") from error
    certificates = part_of(status, "certificates", CertificatesStatus)
    if certificates is not None:
        term.pinned_inside = InsideMode(certificates.internal.pinned)
    term.pinned = release or RELEASE


async def shown_status(term: Term) -> dict[str, Any]:
    """The LogCluster's status as it is stored.  Raises what the API server answers."""
    namespace, name = term.key
    try:
        found = await term.kube.get(LOG_CLUSTERS, namespace, name)
    except NotFound:
        return {}
    return found.get("status") or {}


def part_of(status: dict[str, Any], field: str, shape: type[Shape]) -> Shape | None:
    """None: it is not there, or cannot be read."""
    try:
        return msgspec.convert(status[field], shape) if field in status else None
    except msgspec.ValidationError:
        return None


async def _made(term: Term) -> str | None:
    """What the StatefulSets were made as: the newest, when a roll was under way."""
    namespace, name = term.key
    ours = f"{labels.CLUSTER}={name},{labels.COMPONENT}=broker"
    sets = await term.kube.list(STATEFUL_SETS, namespace, label_selector=ours)
    made = [
        (item["spec"]["template"]["metadata"].get("labels") or {}).get(
            labels.VERSION, release_0_1.RELEASE
        )
        for item in sets.items
    ]
    return max(made, key=numbers, default=None)
