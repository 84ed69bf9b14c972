"""Describes messages between brokers and their controller: proposals and their outcomes, and
fetches that were refused or diverged.

Called by the taps with each message as it is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from plimsoll_core.errors import Code
from plimsoll_core.messages.requests import AlterPartition, PartitionsAnswer, Refused
from plimsoll_wire import control
from plimsoll_wire.replication import decode_fetch

Named = Callable[[UUID, int], str]
"""Function that returns a partition's name."""


def proposals(sender: str, frame: bytes, named: Named) -> list[str]:
    """Describe the proposals of an AlterPartition request."""
    body = control.decode_request(frame).body
    request = body.request if isinstance(body, control.Command) else None
    if not isinstance(request, AlterPartition):
        return []
    told: list[str] = []
    for one in request.proposals:
        members = ",".join(str(member.broker_id) for member in one.new_isr)
        name = named(one.topic_id, one.index)
        told.append(
            f"{sender} proposes {name} isr {members}  (LE {one.leader_epoch} "
            f"PE {one.partition_epoch})"
        )
    return told


def answers(receiver: str, frame: bytes, named: Named) -> list[str]:
    """Describe the answer to an AlterPartition request."""
    answer = control.decode_command_reply(frame).answer
    if isinstance(answer, Refused):
        return [f"{receiver} hears {answer.reason}"]
    if not isinstance(answer, PartitionsAnswer):
        return []
    told: list[str] = []
    for one in answer.partitions:
        members = ",".join(map(str, one.isr))
        said = f"isr {members}  PE {one.partition_epoch}" if not one.code else Code(one.code).name
        told.append(f"{receiver} hears {named(one.topic_id, one.index)} {said}")
    return told


def fetched(sender: str, receiver: str, frame: bytes, named: Named) -> list[str]:
    """Describe the parts of a leader's Fetch reply that report an error or a divergence."""
    number = int.from_bytes(frame[:4], "big")
    told: list[str] = []
    reply = decode_fetch(memoryview(frame), number)
    if reply.code:
        told.append(f"{sender} ends the fetch session of {receiver}")
    for one in reply.partitions:
        name = named(UUID(bytes=one.topic_id), one.partition)
        if one.code:
            told.append(f"{sender} refuses {receiver} {name}: {Code(one.code).name}")
        elif one.diverging is not None:
            epoch, end = one.diverging
            ends = f"ends at {end}" if end >= 0 else "ends before all that is here"
            told.append(f"{sender} tells {receiver} {name}: LE{epoch} {ends}")
    return told
