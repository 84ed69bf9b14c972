"""Restores objects of the metadata log that another client deleted. The leading operator still
knows their content.

A snapshot repairs the log at once. Without the repair no other process could lead after this one,
and that might be noticed only months later.
"""

from __future__ import annotations

from plimsoll_core.errors import Reason
from plimsoll_operator.kube.errors import ApiError
from plimsoll_operator.kube.seen_objects import Key
from plimsoll_operator.metalog.interface import MetadataLogError
from plimsoll_operator.reconcile.pass_result import PassResult
from plimsoll_operator.reconcile.reconcile_term import Term
from plimsoll_operator.reconcile.shared.object_absence import namespace_stands
from plimsoll_operator.reconcile.stall_causes import Cause, StallSource
from plimsoll_operator.reconcile.work_queue import Retry
from plimsoll_operator.status.events import LENGTH_MAX, Occurrence

NAMES_MAX = 5


async def reconcile(term: Term, _: Key) -> PassResult:
    """Restore deleted objects of the metadata log, and report them in an Event. The LogCluster is
    stalled while that fails."""
    with PassResult() as result:
        await _reconcile(term, result)
    return result


async def _reconcile(term: Term, result: PassResult) -> None:
    try:
        if not await namespace_stands(term, term.key[0]):
            return  # the namespace is being deleted: nothing can be created
    except ApiError as error:
        raise Retry(str(error)) from error
    try:
        lost = await term.controller.snapshotter.mend()
        still = await term.controller.snapshotter.lost() if lost else ()
    except MetadataLogError as error:
        text = (
            "Objects of the metadata log were deleted, and the operator, which still knows their "
            "content, could not replace them by a snapshot. It tries again by itself; do not "
            "restart it before, because no other operator could lead this cluster without them. "
            f"Remove the cause: {error}."
        )
        why = Cause(reason=Reason.MetadataRegressed.name, message=text)
        result.stall(StallSource.METADATA_LOG, why)
        raise Retry(str(error)) from error
    if still:
        raise Retry(
            f"the object {still[0]} of the metadata log was deleted and is not recreated yet; "
            "the operator recreates it by itself"
        )
    result.unstall(StallSource.METADATA_LOG)
    if not lost:
        return
    names = ", ".join(lost[:NAMES_MAX]) + (" …" if len(lost) > NAMES_MAX else "")
    text = (
        f"{len(lost)} objects of the metadata log were deleted ({names}). Nothing is lost: the "
        "operator wrote a snapshot of all committed metadata and recreated them."
    )
    key = f"log-mended-{lost[0]}-{term.image.next_offset}"
    message = text[:LENGTH_MAX]
    result.tell(Occurrence(key=key, reason="MetadataLogMended", message=message, warning=True))
