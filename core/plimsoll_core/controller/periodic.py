"""Makes the decisions that follow from time alone: expired sessions, overdue recoveries, moves that
a restart delayed, leaderships to return, a metadata version that every broker now understands,
missing replicas of internal topics, min ISRs that have not reached all partitions.

Called for Tick. Brokers come first, since a fence decides which replicas may lead.
"""

from __future__ import annotations

from plimsoll_core.controller.brokers.fencing import end_sessions
from plimsoll_core.controller.brokers.metadata_finalization import finalize
from plimsoll_core.controller.brokers.restart_grants import end_restarts
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.moves.target_choice import end_moves, note_away
from plimsoll_core.controller.partitions.leader_elections import return_leaders
from plimsoll_core.controller.partitions.unclean_recovery import recover_overdue
from plimsoll_core.controller.topics.config_changes import finish_min_isr
from plimsoll_core.controller.topics.internal_topics import adjust_replicas
from plimsoll_core.messages.requests import Answer, Done, Tick


def tick(turn: DecisionContext, request: Tick) -> Answer:
    end_sessions(turn, request.late_ms)
    note_away(turn)
    if turn.again is None and not turn.hand_over:
        end_restarts(turn)
        end_moves(turn)
        recover_overdue(turn)
        return_leaders(turn)
        finalize(turn)
        adjust_replicas(turn)
        finish_min_isr(turn)
    return Done()
