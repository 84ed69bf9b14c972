"""What the operator's HTTP view shows: topics, brokers, what would happen without some of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import msgspec
from tests.plimsoll_operator.builders import (
    TOPIC_ID,
    an_image,
    isr_changed,
    registered,
    replay,
    with_topic,
)

from plimsoll_core.cluster.model import ClusterImage, PartitionKey
from plimsoll_core.cluster.records import BrokerFenced
from plimsoll_core.controller.kernel.volatile_state import Contact, VolatileState
from plimsoll_core.ids import BrokerId, MetadataOffset
from plimsoll_operator.status import cluster_views
from plimsoll_operator.status.cluster_views import what_if

ROWS = ((0, 1, 2), (1, 2, 0), (2, 0, 1))


def shown(image: ClusterImage, soft: VolatileState | None = None) -> Any:
    outlook = SimpleNamespace(cause="CatchingUp", why="it is.", waits_for=(BrokerId(2),))
    return SimpleNamespace(
        image=image,
        active=True,
        now_ms=5_000,
        soft=soft or VolatileState(),
        outlook=lambda _: outlook,
    )


def a_cluster() -> ClusterImage:
    return with_topic(an_image(), ROWS)


def as_json(view: object) -> Any:
    return msgspec.json.decode(msgspec.json.encode(view))


def test_topic_view_shows_known_sizes_and_lags() -> None:
    image, soft = a_cluster(), VolatileState()
    key = PartitionKey(TOPIC_ID, 0)  # type: ignore[arg-type]
    soft.sizes[key] = 4_096
    soft.behind[key] = {BrokerId(2): 17, BrokerId(1): None}
    topic = image.topics[TOPIC_ID]  # type: ignore[index]
    view = as_json(cluster_views.topic_view(shown(image, soft), topic))
    told, untold, _ = view["partitions"]
    assert (told["bytes"], told["behind"]) == (4_096, {"1": None, "2": 17})
    assert (untold["bytes"], untold["behind"]) == (None, None)
    assert (told["leader"], told["leaderEpoch"], told["isr"]) == (0, 0, [0, 1, 2])
    assert (told["minIsr"], told["margin"]) == (2, 1)
    assert view["declaredBy"] == "kafka/orders"


def test_topic_line_counts_partitions_by_health() -> None:
    image = replay(a_cluster(), isr_changed(0, (0, 1)), isr_changed(1, (1,)))
    (row,) = as_json(cluster_views.topic_rows(shown(image)))
    assert (row["partitions"], row["atMinISR"], row["underMinISR"], row["offline"]) == (3, 1, 1, 0)
    assert row["notFull"] == 2


def test_broker_view_shows_state_load_and_backlog() -> None:
    image = replay(a_cluster(), isr_changed(0, (0, 1)))
    epoch = image.brokers[BrokerId(2)].broker_epoch
    image = replay(
        image,
        BrokerFenced(
            cause="fenced after 6000 ms of silence", broker_id=BrokerId(2), broker_epoch=epoch
        ),
    )
    soft = VolatileState()
    soft.contacts[BrokerId(0)] = Contact(
        broker_epoch=image.brokers[BrokerId(0)].broker_epoch,
        last_ms=4_000,
        applied_offset=MetadataOffset(image.next_offset - 3),
        release="0.2",
    )
    first, _, third = as_json(cluster_views.broker_views(shown(image, soft)))
    assert (first["state"], first["leaders"], first["replicas"], first["inIsr"]) == (
        "Active", 1, 3, 3,
    )  # fmt: skip
    assert (first["heardMsAgo"], first["metadataBehind"], first["release"]) == (1_000, 3, "0.2")
    assert first["indispensable"] == 1, "partition 0 has no member to spare"
    assert (third["state"], third["heardMsAgo"], third["indispensable"]) == ("Fenced", None, 0)


def test_cluster_names_the_worst_partitions_first() -> None:
    image = replay(a_cluster(), isr_changed(0, (0, 1)), isr_changed(2, (2,)))
    found = cluster_views.survey(image)
    view = as_json(cluster_views.cluster_view(shown(image), ("kafka", "main"), "op-1", found))
    assert [row["partition"] for row in view["unhealthy"]] == [2, 0]
    assert (view["unhealthyTotal"], view["operator"]) == (2, "op-1")
    assert view["partitions"]["underMinISR"] == 1


def test_what_if_separates_offline_from_under_min_isr() -> None:
    image = replay(a_cluster(), isr_changed(0, (0, 1)), isr_changed(1, (1,)))
    one = as_json(what_if(image, (0,)))
    assert (one["offline"], one["underMinISR"], one["leadersThatMove"]) == (0, 2, 1)
    assert [(p["partition"], p["leftInIsr"], p["already"]) for p in one["underPartitions"]] == [
        (0, [1], False),
        (1, [1], True),
    ]
    two = as_json(what_if(image, (0, 1)))
    assert [p["partition"] for p in two["offlinePartitions"]] == [0, 1]
    assert [p["leftInIsr"] for p in two["underPartitions"]] == [[2]]
    assert as_json(what_if(image, (7,)))["unknown"] == [7]


def test_unfenced_elr_member_keeps_partition_online() -> None:
    elr = (BrokerId(1),)
    image = replay(a_cluster(), isr_changed(0, (0,), elr=elr))
    gone = as_json(what_if(image, (0,)))
    assert gone["offline"] == 0
    assert [p["leftInIsr"] for p in gone["underPartitions"] if p["partition"] == 0] == [[]]
    fenced = image.brokers[BrokerId(1)].broker_epoch
    image = replay(image, BrokerFenced(cause="x", broker_id=BrokerId(1), broker_epoch=fenced))
    gone = as_json(what_if(image, (0,)))
    assert [p["partition"] for p in gone["offlinePartitions"]] == [0]


def test_view_says_nothing_of_incarnations_directories_or_pods() -> None:
    """What would help somebody to pass for a broker."""
    image = a_cluster()
    text = msgspec.json.encode(cluster_views.broker_views(shown(image))).decode()
    for broker_id in range(3):
        record = registered(broker_id)
        assert str(record.incarnation_id) not in text
        assert str(UUID(int=broker_id + 100)) not in text
        assert f"pod-{broker_id}" not in text
