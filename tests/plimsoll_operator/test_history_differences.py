"""Which logs a broker keeps although its copy of the metadata was given up."""

from __future__ import annotations

import msgspec
from tests.plimsoll_operator.test_restore_decision import BROKERS, NEW, a_topic, brokers, shrunk

from plimsoll_core.cluster.model import ClusterImage, DismissedCopy
from plimsoll_core.controller.brokers.dismissed_copies import logs_to_keep
from plimsoll_core.ids import BrokerId, MetadataOffset


def an_image(isr: tuple[int, ...], dismissed: tuple[int, ...]) -> ClusterImage:
    log = NEW.add(*a_topic(*BROKERS), epoch=2).add(shrunk(*isr), epoch=2)
    copies = tuple(
        DismissedCopy(broker_id=one, applied_offset=MetadataOffset(5), nonce="n")
        for one in brokers(*dismissed)
    )
    return msgspec.structs.replace(log.image, dismissed=copies)


def keepers(isr: tuple[int, ...], dismissed: tuple[int, ...]) -> list[int]:
    image = an_image(isr, dismissed)
    kept = {broker_id: logs_to_keep(image, BrokerId(broker_id)) for broker_id in dismissed}
    assert all(logs in ((), (("r", (0,)),)) for logs in kept.values())
    return [broker_id for broker_id, logs in kept.items() if logs]


def test_last_log_in_sync_is_kept() -> None:
    assert keepers(isr=(1,), dismissed=(1, 2)) == [1]
    assert keepers(isr=(1, 3), dismissed=(1, 2)) == [], "broker 3 has it"


def test_one_of_several_dismissed_logs_is_kept() -> None:
    """All of them at once must not be set aside."""
    assert keepers(isr=(3, 2), dismissed=(1, 2, 3)) == [2]


def test_sole_replica_is_kept() -> None:
    image = NEW.add(*a_topic(3), epoch=2).image
    assert logs_to_keep(image, BrokerId(3)) == (("r", (0,)),)
    assert logs_to_keep(image, BrokerId(1)) == ()
