"""Builds the refusals of a controller that cannot decide, and futures for answers that need no
commit.
"""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from plimsoll_core.errors import Reason
from plimsoll_core.messages.requests import Answer, Refused
from plimsoll_core.phrasing import sentence_start
from plimsoll_operator.metalog.interface import LogOfAnother

NOT_LEADING = "The request was not carried out, because the operator is no longer the controller"


def answered(answer: Answer) -> asyncio.Future[Answer]:
    """Return a future that already holds this answer."""
    future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    future.set_result(answer)
    return future


def refused(reason: Reason, message: str) -> Refused:
    return Refused(reason=reason.name, code=reason.code, message=message)


def not_controller(message: str) -> Refused:
    """Return the refusal of a controller that is not active."""
    return refused(Reason.NotController, message)


def dismissed(keep_logs: tuple[tuple[str, tuple[int, ...]], ...]) -> Refused:
    """Return the refusal of a broker if a person gave up its copy of the metadata. `keep_logs`: the
    logs that it must not set aside (`Refused`)."""
    text = (
        "A person confirmed a restore of the metadata log that contradicts this broker's copy of "
        "the metadata, so the broker deletes that copy. It also copies anew each partition of "
        "which another broker has a complete replica, and keeps its former log of that partition "
        "for a day. Nothing needs to be done."
    )
    return replace(refused(Reason.MetadataDismissed, text), keep_logs=keep_logs)


def unusable(error: Exception) -> Refused:
    """Return a refusal that says why the metadata log cannot be used: it is damaged, went back in
    time, or belongs to another cluster. `error`: the exception with the reason."""
    if isinstance(error.__cause__, LogOfAnother):
        return refused(Reason.NotAllowed, f"{sentence_start(str(error.__cause__))}.")
    return refused(Reason.MetadataRegressed, str(error))


def too_new(error: Exception) -> Refused:
    """Return a refusal that says that a newer release has written to the metadata log. This release
    then does not lead, and does not guess the meaning of unknown records."""
    text = (
        f"A newer release has written to this metadata log: {error}. This operator does not "
        "lead the cluster and writes nothing; brokers keep serving with the last metadata that "
        "they applied. Run the operator of that release."
    )
    return refused(Reason.MetadataTooNew, text)
