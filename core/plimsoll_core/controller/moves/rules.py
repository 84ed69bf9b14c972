"""The table of rules for requests about moves of replicas, by request. Called by
`controller.decide`."""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll_core.controller.kernel.decision import Rule
from plimsoll_core.controller.moves import reassignment_object, rebalance_object
from plimsoll_core.controller.moves.partition_move import alter_reassignments, limit, report_copies
from plimsoll_core.controller.moves.rebalance_object import begin
from plimsoll_core.messages import moves as m

RULES: Mapping[type, Rule] = {
    m.AlterReassignments: alter_reassignments,
    m.LimitMovement: limit,
    m.ReportCopies: report_copies,
    m.RunReassignment: reassignment_object.run,
    m.ReassignmentObjectGone: reassignment_object.object_gone,
    m.BeginRebalance: begin,
    m.RunRebalance: rebalance_object.run,
    m.RebalanceObjectGone: rebalance_object.object_gone,
}
