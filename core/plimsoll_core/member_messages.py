"""What the operator asks about brokers that go.  Part of `messages`, which lists them."""

from __future__ import annotations

from plimsoll_core.ids import BrokerEpoch, BrokerId
from plimsoll_core.message import Message


class SetLeaving(Message, frozen=True, kw_only=True):
    """All brokers that are to be emptied: they take no new replicas from now on."""

    broker_ids: tuple[BrokerId, ...]


class UnregisterBroker(Message, frozen=True, kw_only=True):
    """A broker is gone for good: this lifetime of it was its last.  Its id may be used again."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch


class ReleaseVolume(Message, frozen=True, kw_only=True):
    """The volume of a broker that is gone is not needed any more; `pvc_uid`: its claim's."""

    broker_id: BrokerId
    pvc_uid: str


class VolumeGone(Message, frozen=True, kw_only=True):
    """The claim of a released volume does not exist any more."""

    pvc_uid: str
