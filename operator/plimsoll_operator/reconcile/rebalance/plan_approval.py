"""Approval of a Rebalance's plan, and the reason shown until it begins: AwaitingApproval, Starting,
PlanChanged (another plan was approved) or UnknownPlan.

Called by `planning`, which begins no unapproved plan, and by `rebalance_status`. Pure. The
controller checks that an approved plan still holds when it begins (PlanOutdated).
"""

from __future__ import annotations

from collections.abc import Collection

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.planner.rebalance import Planned
from plimsoll_operator.api.rebalance import Rebalance


def is_approved(found: Rebalance, planned: Planned) -> bool:
    """Return True if exactly this plan may be carried out."""
    if planned.plan.nothing_to_do:
        return True
    return found.spec.approval == "Automatic" or found.spec.approved_plan == planned.hash


def approval_reason(
    found: Rebalance, name: str, image: ClusterImage, shown: Collection[str]
) -> tuple[str, str]:
    """Return reason and sentence for a plan that has not begun. `name`: the present plan's hash.
    `shown`: hashes shown in this term."""
    ask = f"Set spec.approvedPlan to {name} to carry out the plan in status.plan."
    if any(p.moving for p in image.partitions.values()):
        ask += " Other moves are in progress and change the plan: approve it when they are done."
    approved = found.spec.approved_plan
    if approved and approved == name:
        return "Starting", "The plan is approved and about to start."
    if approved in shown:
        return "PlanChanged", f"The approved plan is out of date. {ask}"
    if approved:
        text = f"spec.approvedPlan is {approved}, which matches no recent plan."
        return "UnknownPlan", f"{text} {ask}"
    return "AwaitingApproval", ask
