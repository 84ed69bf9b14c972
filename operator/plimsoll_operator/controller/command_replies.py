"""Envelope of an answer to a broker: the controller, the end of the log, and the broker's settings.

Called by `controller_server` for each reply.
"""

from __future__ import annotations

import asyncio
from uuid import UUID

from plimsoll_core.controller.kernel.settings import Settings
from plimsoll_core.errors import Reason
from plimsoll_core.ids import ControllerEpoch
from plimsoll_core.messages.broker_figures import TopicDefaults
from plimsoll_core.messages.metadata_stream import FetchMetadata
from plimsoll_core.messages.requests import Answer, Refused, RegisterBroker
from plimsoll_operator.controller.commit_queue import refused
from plimsoll_operator.controller.controller_term import Controller
from plimsoll_wire import control
from plimsoll_wire.control import CommandReply


def command_reply(controller: Controller | None, answer: Answer) -> CommandReply:
    """Build the reply; `controller` is None if the controller of the broker's cluster does not run
    here."""
    if controller is None:
        return CommandReply(controller_epoch=ControllerEpoch(0), answer=answer)
    return CommandReply(
        controller_epoch=controller.epoch,
        unconfirmed=controller.unconfirmed,
        answer=answer,
        metadata_end=controller.image.next_offset,
        session_timeout_ms=controller.settings.session_timeout_ms,
        log_output=controller.settings.log_output,
        topic_defaults=_topic_defaults(controller.settings),
    )


def _topic_defaults(settings: Settings) -> TopicDefaults:
    return TopicDefaults(
        partitions=settings.default_partitions,
        replication_factor=settings.default_replication_factor,
        min_isr=settings.default_min_isr,
    )


ONE_AT_A_TIME = (RegisterBroker.__name__, FetchMetadata.__name__)
"""Requests of which a broker sends the next only after the answer."""


def kind_of(body: control.Command | FetchMetadata) -> str:
    request = body if isinstance(body, FetchMetadata) else body.request
    return type(request).__name__


def no_update(epoch: ControllerEpoch, refusal: Refused) -> control.MetadataReply:
    return control.MetadataReply(controller_epoch=epoch, refused=refusal)


def finished_future() -> asyncio.Future[None]:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.set_result(None)
    return future


def not_here(cluster_id: UUID) -> Refused:
    return refused(
        Reason.NotController, f"This process runs no controller of cluster {cluster_id}."
    )


def too_many(waiting: int, whose: str = "from clients") -> Refused:
    text = f"{waiting} requests {whose} are waiting for the controller; retry later."
    return refused(Reason.TooManyWaiting, text)
