"""The operator's requests about brokers that leave.  Part of `messages`, which lists them."""

from __future__ import annotations

from plimsoll_core.ids import BrokerEpoch, BrokerId
from plimsoll_core.messages.base import Message


class SetLeaving(Message, frozen=True, kw_only=True):
    """All brokers that are to be emptied: they take no new replicas from now on."""

    broker_ids: tuple[BrokerId, ...]


class SettleNewcomers(Message, frozen=True, kw_only=True):
    """These members joined, and whatever should follow from that was arranged."""

    broker_ids: tuple[BrokerId, ...]


class UnregisterBroker(Message, frozen=True, kw_only=True):
    """A broker is gone for good: this lifetime of it was its last.  Its id may be used again.

    `pvc_uid`: the claim of its volume, when the volume is to be deleted too.
    """

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    pvc_uid: str | None = None


class VolumeGone(Message, frozen=True, kw_only=True):
    """The claim of a released volume does not exist any more."""

    pvc_uid: str


MembershipRequest = SetLeaving | SettleNewcomers | UnregisterBroker | VolumeGone
