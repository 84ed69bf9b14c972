"""Reconciles the members with the spec's count and exclusions, step by step.

Growing is a commit, and the brokers follow.  Shrinking goes in steps, each committed: whoever is
not wanted is leaving and takes no new replicas; a Rebalance empties it; it is no member any more;
what is left of it is removed (`removed_brokers`).  An edit settles for some seconds first, because
people and tools change the count and the exclusions one after the other.  What cannot be done is
said in `status.blocked`, and nothing of it is half done.
"""

from __future__ import annotations

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.controller.brokers.membership import next_members
from plimsoll_core.messages.brokers import SetLeaving
from plimsoll_core.messages.requests import Refused, SetMembers
from plimsoll_core.phrasing import brokers_text
from plimsoll_operator.api.cluster_status import BlockedAction
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.manifests.manifest_context import Context
from plimsoll_operator.reconcile.cluster import membership_rebalances, removed_brokers
from plimsoll_operator.reconcile.cluster.edit_settling import Ids, is_settled
from plimsoll_operator.reconcile.cluster.membership_rebalances import blocked
from plimsoll_operator.reconcile.reconcile_term import Task, Term, Work
from plimsoll_operator.reconcile.work_queue import Retry

LOOK_MS = 2_000


async def settle(term: Term, cluster: LogCluster) -> list[BlockedAction]:
    """What is committed about members; before anything is made for them."""
    wanted = next_members(term.image.members, cluster.count, cluster.excluded_ids)
    if not term.image.members:
        await _set_members(term, wanted)
        return []
    if not is_settled(term, wanted):
        return []
    if new := set(wanted) - set(term.image.members):
        refusal = await _set_members(term, (*term.image.members, *new))
        if refusal is not None:
            return [blocked(term, min(new), refusal.reason, refusal.message, "Start")]
    rows = await _set_leaving(term, wanted)
    image = term.image
    empty = [b for b in image.leaving if b not in wanted and not image.hosted.get(b)]
    kept = tuple(b for b in image.members if b not in empty)
    if kept != image.members:
        refusal = await _set_members(term, kept)
        if refusal is not None:
            raise Retry(refusal.message)
    return rows


async def follow(term: Term, context: Context, rows: list[BlockedAction]) -> None:
    """What is made and removed because of what is committed; `rows`: what waits already."""
    rows = [*rows, *await membership_rebalances.reconcile(term, context)]
    rows += await removed_brokers.reconcile(term, context.cluster)
    term.block("Members", rows)
    if rows or term.image.leaving or term.image.newcomers or removed_brokers.unfinished(term):
        term.add_later(Work(Task.CLUSTER, term.key), LOOK_MS)


async def _set_members(term: Term, wanted: Ids) -> Refused | None:
    answer = await term.ask(SetMembers(broker_ids=tuple(sorted(wanted))))
    if isinstance(answer, Refused):
        return answer
    # New brokers may be what a refused topic waits for.
    for key in term.refusals:
        term.add(Work(Task.TOPIC, key))
    return None


async def _set_leaving(term: Term, wanted: Ids) -> list[BlockedAction]:
    """Sets leaving members once the joining ones have joined; takes a leave back at once."""
    image = term.image
    going = tuple(b for b in image.members if b not in wanted)
    former = tuple(b for b in image.leaving if b not in image.members)
    begun = tuple(b for b in going if b in image.leaving)
    waiting = [b for b in going if b not in begun]
    if absent := _absent(image):
        text = f"{brokers_text(absent)} joined and can take replicas"
        rows = [blocked(term, b, "WaitingForBrokers", text) for b in waiting]
        await _commit_leaving(term, (*begun, *former))
        return rows
    refusal = await _commit_leaving(term, (*going, *former))
    if refusal is None:
        return []
    await _commit_leaving(term, (*begun, *former))
    return [blocked(term, b, refusal.reason, refusal.message) for b in waiting]


def _absent(image: ClusterImage) -> Ids:
    """Newcomers that do not take part yet."""
    brokers = image.brokers
    return tuple(b for b in image.newcomers if b not in brokers or not brokers[b].active)


async def _commit_leaving(term: Term, leaving: Ids) -> Refused | None:
    leaving = tuple(sorted(leaving))
    if leaving == term.image.leaving:
        return None
    answer = await term.ask(SetLeaving(broker_ids=leaving))
    if isinstance(answer, Refused):
        return answer
    return None
