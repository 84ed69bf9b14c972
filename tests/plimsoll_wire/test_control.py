"""Control messages survive the wire, and nothing else gets through."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_core.cluster.model import AnnouncedEndpoint, Recovery
from plimsoll_core.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    MetadataOffset,
    PartitionEpoch,
)
from plimsoll_core.messages.metadata_stream import FetchMetadata, MetadataBatchCopy, MetadataUpdate
from plimsoll_core.messages.requests import (
    AlterPartition,
    BrokerRequest,
    FailedReplica,
    Heartbeat,
    HeartbeatAnswer,
    IsrMember,
    IsrProposal,
    LogPosition,
    RegisterBroker,
    ReportFailedReplicas,
    SetMembers,
    Tick,
)
from plimsoll_wire import control

CLUSTER = UUID("7f3d9c3e-6c54-4c58-8f0e-2d6b36f0a001")
POSITION = LogPosition(
    applied_offset=MetadataOffset(7), nonce="n", controller_epoch=ControllerEpoch(3)
)


def a_heartbeat() -> Heartbeat:
    return Heartbeat(
        broker_id=BrokerId(1),
        broker_epoch=BrokerEpoch(5),
        position=POSITION,
        metadata_versions=(1, 1),
        release="0.2.0",
    )


def requests() -> list[BrokerRequest]:
    proposal = IsrProposal(
        topic_id=uuid4(),
        index=2,
        leader_epoch=LeaderEpoch(1),
        partition_epoch=PartitionEpoch(4),
        new_isr=(IsrMember(broker_id=BrokerId(0), broker_epoch=None),),
        recovery=Recovery.RECOVERED,
        cause="test",
    )
    return [
        a_heartbeat(),
        RegisterBroker(
            cluster_id=CLUSTER,
            broker_id=BrokerId(0),
            incarnation_id=uuid4(),
            previous_broker_epoch=None,
            directory_ids=(uuid4(),),
            endpoints=(AnnouncedEndpoint(name="PLAINTEXT", host="127.0.0.1", port=9092),),
            metadata_versions=(1, 1),
            release="0.2.0",
        ),
        AlterPartition(broker_id=BrokerId(0), broker_epoch=BrokerEpoch(1), proposals=(proposal,)),
        ReportFailedReplicas(
            broker_id=BrokerId(0),
            broker_epoch=BrokerEpoch(1),
            replicas=(FailedReplica(topic_id=uuid4(), index=7),),
        ),
    ]


@pytest.mark.parametrize("request_", requests(), ids=lambda r: type(r).__name__)
def test_command_arrives_as_it_was_sent(request_: BrokerRequest) -> None:
    command = control.Command(
        cluster_id=CLUSTER, controller_epoch=ControllerEpoch(3), request=request_
    )
    frame = control.encode_request(42, "broker-1", command)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    decoded = control.decode_request(frame[4:])
    assert decoded == control.ControlRequest(42, "broker-1", command)


def test_metadata_fetch_and_its_reply_arrive_as_sent() -> None:
    fetch = FetchMetadata(cluster_id=CLUSTER, broker_id=BrokerId(1), offset=MetadataOffset(3))
    assert control.decode_request(control.encode_request(1, "b", fetch)[4:]).body == fetch
    batch = MetadataBatchCopy(
        base_offset=MetadataOffset(3),
        controller_epoch=ControllerEpoch(2),
        nonce="x",
        records_json=b'[{"future": [1, "a"]}]',
        record_count=1,
    )
    reply = control.MetadataReply(
        controller_epoch=ControllerEpoch(2), update=MetadataUpdate(batches=(batch,))
    )
    frame = control.encode_reply(-7, reply)
    assert control.reply_correlation_id(frame[4:]) == -7
    assert control.decode_metadata_reply(frame[4:]) == reply


def test_command_reply_arrives_as_sent() -> None:
    reply = control.CommandReply(
        controller_epoch=ControllerEpoch(9),
        unconfirmed=True,
        answer=HeartbeatAnswer(is_caught_up=True, is_fenced=False, should_shut_down=False),
    )
    assert control.decode_command_reply(control.encode_reply(1, reply)[4:]) == reply


@pytest.mark.parametrize("inner", [Tick(), SetMembers(broker_ids=(BrokerId(0),))])
def test_decode_rejects_command_with_operator_only_request(inner: object) -> None:
    command = control.Command(
        cluster_id=CLUSTER,
        controller_epoch=ControllerEpoch(0),
        request=inner,  # type: ignore[arg-type]
    )
    frame = control.encode_request(1, "evil", command)
    with pytest.raises(control.MalformedControlMessage, match="1000"):
        control.decode_request(frame[4:])


@given(st.binary(max_size=200))
def test_garbage_is_malformed_and_nothing_else(data: bytes) -> None:
    for decode in (
        control.decode_request,
        control.decode_command_reply,
        control.decode_metadata_reply,
    ):
        with pytest.raises(control.MalformedControlMessage):
            decode(data)


@given(st.integers(min_value=0, max_value=300), st.integers(min_value=0, max_value=255))
def test_flipped_byte_never_raises_anything_else(position: int, value: int) -> None:
    command = control.Command(
        cluster_id=CLUSTER, controller_epoch=ControllerEpoch(0), request=a_heartbeat()
    )
    frame = bytearray(control.encode_request(1, "b", command)[4:])
    frame[position % len(frame)] = value
    try:
        control.decode_request(frame)
    except control.MalformedControlMessage:
        return
