"""What goes with an answer to a broker: who answers, how far the log is, what holds for its broker.

Called by `controller_server` for each reply.
"""

from __future__ import annotations

from plimsoll_core.ids import ControllerEpoch
from plimsoll_core.messages.requests import Answer
from plimsoll_operator.controller.controller_term import Controller
from plimsoll_wire.control import CommandReply


def command_reply(controller: Controller | None, answer: Answer) -> CommandReply:
    """`controller` None: none of the broker's cluster runs here."""
    if controller is None:
        return CommandReply(controller_epoch=ControllerEpoch(0), answer=answer)
    return CommandReply(
        controller_epoch=controller.epoch,
        unconfirmed=controller.unconfirmed,
        answer=answer,
        metadata_end=controller.image.next_offset,
        session_timeout_ms=controller.settings.session_timeout_ms,
        log_output=controller.settings.log_output,
    )
