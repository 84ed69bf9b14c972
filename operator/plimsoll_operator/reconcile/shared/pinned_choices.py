"""Choices that the operator once made because a LogCluster's spec states nothing: the brokers'
release, and the mode of internal TLS. They are read from the status once in each term, and do not
change afterwards.

The brokers' release is the one pinned in the status, else that of their StatefulSets, and for a new
cluster the operator's own. The mode of internal certificates is the one pinned in the status, else
decided from the log (`inside.decide`). Nothing else is read from the status.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from plimsoll_core.cluster.record_versions import numbers
from plimsoll_core.release import RELEASE
from plimsoll_core.security.inside import InsideMode
from plimsoll_operator.api import labels
from plimsoll_operator.api.cluster_status import CertificatesStatus, Versions
from plimsoll_operator.kube.errors import ApiError, NotFound
from plimsoll_operator.kube.resources import LOG_CLUSTERS, STATEFUL_SETS
from plimsoll_operator.manifests.manifest_context import Context
from plimsoll_operator.reconcile.reconcile_term import Term
from plimsoll_operator.reconcile.work_queue import UNLESS_LASTING, Retry

Shape = TypeVar("Shape")


@dataclass(slots=True)
class PinnedChoices:
    """The choices of one cluster, as one term has read or made them. The LogCluster's reconciler
    writes them."""

    # Release of the brokers if the spec states none; None until it was read.
    release: str | None = None
    # Mode of internal TLS: the spec's, else the one decided for a spec that states none.
    inside: InsideMode | None = None
    # True if the spec asks for a release that must not run.
    version_refused: bool = False
    # The last result of `manifest_context`, reused while it fits. A LogCluster is never changed in
    # place.
    context: Context | None = None


def choices_of(term: Term) -> PinnedChoices:
    return term.kept(PinnedChoices, PinnedChoices)


def brokers_version(term: Term) -> str:
    """Return the release that brokers shall run: the spec's, else the pinned one, else the
    operator's own."""
    cluster = term.cluster
    stated = cluster.spec.version if cluster is not None else None
    return stated or choices_of(term).release or RELEASE


def manifest_context(term: Term) -> Context | None:
    """Return the input from which the manifests of the cluster's children are made. Return None if
    the LogCluster is deleted, its spec is not readable as a whole, or the brokers' release is
    refused or has no image."""
    cluster, choices, options = term.cluster, choices_of(term), term.options
    if cluster is None or term.missing or choices.version_refused:
        return None
    version = brokers_version(term)
    if version not in options.images:
        return None
    known = choices.context
    if known is not None and known.cluster is cluster and known.version == version:
        return known
    choices.context = Context(
        cluster=cluster,
        cluster_id=term.cluster_id,
        version=version,
        broker_image=options.images[version],
        image_pull_policy=options.image_pull_policy,
        image_pull_secrets=options.image_pull_secrets,
        set_user=options.set_user,
        controllers=options.controllers,
        operator_namespace=options.namespace,
        server_names=options.server_names,
        metrics_from=options.metrics_from,
    )
    return choices.context


async def read(term: Term) -> None:
    """Read the choices from the LogCluster's status, unless this term has done so already. Raise
    Retry if the API server fails."""
    choices = choices_of(term)
    if choices.release is not None:
        return
    try:
        status = await shown_status(term)
        versions = part_of(status, "versions", Versions)
        release = versions.pinned if versions else await _made(term)
    except ApiError as error:
        text = (
            "the operator cannot read the brokers' release from LogCluster "
            f"{'/'.join(term.key)}; {UNLESS_LASTING}: {error}"
        )
        raise Retry(text) from error
    certificates = part_of(status, "certificates", CertificatesStatus)
    if certificates is not None:
        choices.inside = InsideMode(certificates.internal.pinned)
    choices.release = release or RELEASE


async def shown_status(term: Term) -> dict[str, Any]:
    """Return the status of the LogCluster as stored in the API server, {} if there is none. Raises
    the API server's errors."""
    namespace, name = term.key
    try:
        found = await term.kube.get(LOG_CLUSTERS, namespace, name)
    except NotFound:
        return {}
    return found.get("status") or {}


def part_of(status: dict[str, Any], field: str, shape: type[Shape]) -> Shape | None:
    """Return the `field` of a status as a `shape`, or None if it is absent or cannot be read."""
    try:
        return msgspec.convert(status[field], shape) if field in status else None
    except msgspec.ValidationError:
        return None


async def _made(term: Term) -> str | None:
    """Return the newest release among the brokers' StatefulSets, which differ during a rolling
    upgrade. Return None if there are none."""
    namespace, name = term.key
    ours = f"{labels.CLUSTER}={name},{labels.COMPONENT}=broker"
    sets = await term.kube.list(STATEFUL_SETS, namespace, label_selector=ours)
    made = [
        release
        for item in sets.items
        if (
            release := (item["spec"]["template"]["metadata"].get("labels") or {}).get(
                labels.VERSION
            )
        )
    ]
    return max(made, key=numbers, default=None)
