"""How brokers and the operator are to talk to each other, also where the spec does not say.

What is stated counts.  Where nothing is stated a new cluster is closed, and one that was there
before stays as it is (`security.inside.unstated_mode`).  What was decided stands in the status, and
it stands there before anything is made for a new cluster: whoever leads next, and finds brokers in
the log, could not tell it from an old one.  A status that was lost later is no matter, as soon as
the log says more than Off.  docs/design/012-inside-certificates.md.
"""

from __future__ import annotations

import logging

from plimsoll_core.security.inside import InsideMode, unstated_mode
from plimsoll_operator.api.certificates import ModeName
from plimsoll_operator.api.cluster_status import CertificatesStatus, InternalCertificatesStatus
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.kube.errors import ApiError
from plimsoll_operator.reconcile.cluster.pinned_choices import part_of, shown_status
from plimsoll_operator.reconcile.reconcile_term import Term
from plimsoll_operator.reconcile.work_queue import Retry

logger = logging.getLogger("plimsoll.inside")

AGAIN_MS = 500
NAMES: dict[InsideMode, ModeName] = {
    InsideMode.OFF: "Off",
    InsideMode.PERMISSIVE: "Permissive",
    InsideMode.REQUIRED: "Required",
}


async def decide(term: Term, cluster: LogCluster) -> InsideMode:
    """The mode that is wanted; for a new cluster it is in the status when this returns.  Raises
    Retry."""
    stated, image = cluster.stated_inside, term.image
    if stated is not None:
        pinned = stated
    else:
        pinned = unstated_mode(
            term.pinned_inside, image.inside.mode, has_brokers=bool(image.brokers)
        )
    if pinned is not term.pinned_inside:
        term.pinned_inside = pinned
        term.mark_cluster()
    if stated is None and not image.brokers:
        await _keep(term, pinned)
    return pinned


async def _keep(term: Term, pinned: InsideMode) -> None:
    try:
        if _is_kept(await shown_status(term), pinned):
            return
        await term.write_status()
        status = await shown_status(term)
    except ApiError as error:
        raise Retry(f"the internal TLS mode is not in the status yet:  {error}") from error
    if _is_kept(status, pinned):
        return
    if "versions" in status and "certificates" not in status:
        # The CRD is older than this operator: nothing can remember it but the log, later.
        logger.warning(
            "the LogCluster CRD has no status.certificates; install the CRDs of this release"
        )
        return
    raise Retry("the internal TLS mode is not in the status yet", after_ms=AGAIN_MS)


def _is_kept(status: dict[str, object], pinned: InsideMode) -> bool:
    found = part_of(status, "certificates", CertificatesStatus)
    return found is not None and found.internal.pinned == NAMES[pinned]


def certificates_status(term: Term) -> CertificatesStatus | None:
    """None: nothing was decided in this term yet."""
    if term.pinned_inside is None:
        return None
    mode = NAMES[term.image.inside.mode]
    return CertificatesStatus(
        internal=InternalCertificatesStatus(mode=mode, pinned=NAMES[term.pinned_inside])
    )
