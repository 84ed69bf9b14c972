"""The rules for requests about moves of replicas, by request.  Called by `controller.decide`."""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll_core.controller.kernel.decision import Rule
from plimsoll_core.controller.moves import reassignment_object, rebalance_object
from plimsoll_core.controller.moves.partition_move import alter_reassignments, limit, report_copies
from plimsoll_core.controller.moves.rebalance_object import begin
from plimsoll_core.messages import reassignments, rebalances

RULES: Mapping[type, Rule] = {
    reassignments.AlterReassignments: alter_reassignments,
    reassignments.LimitMovement: limit,
    reassignments.ReportCopies: report_copies,
    reassignments.RunReassignment: reassignment_object.run,
    reassignments.ReassignmentObjectGone: reassignment_object.object_gone,
    rebalances.BeginRebalance: begin,
    rebalances.RunRebalance: rebalance_object.run,
    rebalances.RebalanceObjectGone: rebalance_object.object_gone,
}
