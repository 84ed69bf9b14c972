"""Calls the rule that answers a request: the only switch of the controller.

Called by the controller's process and the simulator, with the image that includes every queued
record. Each package below exports its `RULES`, from requests to functions; nothing is decided here.
A refusal leaves no record behind.
"""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.controller.brokers import rules as brokers
from plimsoll_core.controller.kernel.decision import Decision, DecisionContext, Rule
from plimsoll_core.controller.kernel.settings import Settings
from plimsoll_core.controller.kernel.volatile_state import VolatileState
from plimsoll_core.controller.moves import rules as moves
from plimsoll_core.controller.partitions import rules as partitions
from plimsoll_core.controller.periodic import tick
from plimsoll_core.controller.security import rules as security
from plimsoll_core.controller.security.reauthorization import refused_again
from plimsoll_core.controller.take_over import activate
from plimsoll_core.controller.topics import rules as topics
from plimsoll_core.errors import Refusal
from plimsoll_core.messages import requests as m

__all__ = ["Decision", "Settings", "VolatileState", "decide", "refused"]

_RULES: Mapping[type, Rule] = {
    m.Activated: activate,
    m.Tick: tick,
    **brokers.RULES,
    **partitions.RULES,
    **moves.RULES,
    **topics.RULES,
    **security.RULES,
}


def decide(
    image: ClusterImage, soft: VolatileState, request: m.Request, now_ms: int, settings: Settings
) -> Decision:
    """Decide a request: return the records to commit, and the answer to send once they are
    committed. If the request is refused, the answer is the refusal and there are no records."""
    turn = DecisionContext(image=image, soft=soft, now_ms=now_ms, settings=settings)
    answer = refused_again(image, request) or _RULES[type(request)](turn, request)
    if isinstance(answer, Refusal):
        assert not turn.records, "a refused request changes nothing"
        return Decision(image=image, answer=refused(answer))
    # Without progress the same request would be decided again at once, for ever.
    assert turn.records or turn.again is None or turn.again != request, f"no progress: {request}"
    return Decision(
        records=tuple(turn.records),
        image=turn.image,
        answer=answer,
        again=turn.again,
        hand_over=turn.hand_over,
    )


def refused(refusal: Refusal) -> m.Refused:
    """Return the answer message for a refusal."""
    return m.Refused(reason=refusal.reason.name, code=refusal.reason.code, message=refusal.message)
