"""Whether an edit of the count or the exclusions has settled: ten seconds without another one.

Called by `members`, and by `logcluster_status` for the condition that says so.  People and tools
change them one after the other.
"""

from __future__ import annotations

from plimsoll_core.controller.brokers.membership import next_members
from plimsoll_core.ids import BrokerId
from plimsoll_core.phrasing import brokers_text
from plimsoll_operator.api.conditions import condition
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.reconcile.reconcile_term import Task, Term, Work

SETTLE_MS = 10_000


Ids = tuple[BrokerId, ...]


def is_settled(term: Term, wanted: Ids) -> bool:
    """Whether this has been wished for long enough; what is committed already needs no time."""
    image = term.image
    going = [b for b in image.members if b not in wanted]
    if set(wanted) <= set(image.members) and going == [b for b in image.leaving if b in going]:
        term.settling = None
        return True
    if term.settling is None or term.settling[0] != wanted:
        term.settling = (wanted, term.monotonic_ms())
    left_ms = term.settling[1] + SETTLE_MS - term.monotonic_ms()
    if left_ms > 0:
        term.add_later(Work(Task.CLUSTER, term.key), left_ms)
    return left_ms <= 0


def unsettled(term: Term, cluster: LogCluster) -> Condition | None:
    """What is said while the members are not, and do not become, what the spec asks for now; None
    when they are or do.  An edit that cannot be followed at all is not looked at by `is_settled`:
    what that remembers may be of an earlier one."""
    image = term.image
    wanted = next_members(image.members, cluster.count, cluster.excluded_ids)
    if set(wanted) == set(image.members) - set(image.leaving):
        return None
    if term.settling is not None and term.settling[0] == wanted:
        if term.monotonic_ms() - term.settling[1] < SETTLE_MS:
            return settling_condition(wanted)
        text = (
            f"The spec asks for {brokers_text(wanted)}; the change is blocked, see the "
            "condition Blocked."
        )
        return condition("Reconciling", True, "Blocked", text)
    return None


def settling_condition(wanted: Ids) -> Condition:
    """Edits often come in several; a wish stands for some seconds before it is acted on."""
    text = (
        f"The spec asks for {brokers_text(wanted)}; the change starts when the spec has not "
        "been edited for some seconds."
    )
    return condition("Reconciling", True, "Settling", text)
