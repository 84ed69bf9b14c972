"""Deletes an ended Verification when the time for which its spec keeps it is over."""

from __future__ import annotations

from plimsoll_operator.api.conditions import milliseconds
from plimsoll_operator.api.durations import seconds
from plimsoll_operator.api.verification import Verification
from plimsoll_operator.kube.errors import ApiError, Conflict, NotFound
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import VERIFICATIONS
from plimsoll_operator.reconcile.pass_result import PassResult
from plimsoll_operator.reconcile.reconcile_term import Task, Term, Work
from plimsoll_operator.reconcile.work_queue import UNLESS_LASTING, Retry

LOOK_MS_MIN, LOOK_MS_MAX = 1_000, 600_000
"""Shortest and longest time in milliseconds before the end of the Verification is checked again."""


async def expire(term: Term, result: PassResult, verification: Verification) -> None:
    """Delete the ended Verification if its `ttlAfterFinished` is over by the API server's clock,
    else queue the Verification for another check. Do nothing if its spec states none, or if it is
    gone already. Raise Retry if the API server fails."""
    ttl = verification.spec.ttl_after_finished
    if ttl is None:
        return
    key, uid = verification.key, verification.metadata.uid
    try:
        # A fresh read: it proves the end, and renews the API server's clock.
        ended_ms = _ended_ms(await term.kube.get(VERIFICATIONS, *key), uid)
        if ended_ms is None:
            return
        left_ms = ended_ms + 1_000 * seconds(ttl) - term.server_ms()
        if left_ms <= 0:
            await term.kube.delete(VERIFICATIONS, *key, uid=uid)
            return
    except (NotFound, Conflict):
        return
    except ApiError as error:
        text = (
            f"the operator cannot delete Verification {'/'.join(key)} at the end of its time to "
            f"live; {UNLESS_LASTING}: {error}"
        )
        raise Retry(text) from error
    wait_ms = max(LOOK_MS_MIN, min(LOOK_MS_MAX, left_ms))
    result.add_later(Work(Task.VERIFICATION, key), wait_ms)


def _ended_ms(body: Object, uid: str) -> int | None:
    """Return the time at which the Verification with this uid ended, in milliseconds since 1970, by
    its conditions. Return None if it has not ended, or `body` is another object."""
    if body["metadata"]["uid"] != uid:
        return None
    ends = [
        milliseconds(one["lastTransitionTime"])
        for one in (body.get("status") or {}).get("conditions") or ()
        if one["type"] in ("Complete", "Failed") and one["status"] == "True"
    ]
    return min(ends, default=None)
