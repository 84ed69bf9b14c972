"""What the controllers' port reads and decides first, and what it does not decide any more."""

from __future__ import annotations

import asyncio

from tests.plimsoll_operator.test_controller_server import (
    WAIT_S,
    Peer,
    a_heartbeat,
    a_listener,
    serving,
    unfenced,
)
from tests.plimsoll_operator.test_group_commit import CLUSTER, MemoryLog

from plimsoll_core.ids import BrokerId, ControllerEpoch
from plimsoll_core.messages.requests import (
    AlterPartition,
    Answer,
    BrokerRequest,
    CreateTopics,
    Heartbeat,
    PartitionsAnswer,
    Refused,
    Request,
    SetMembers,
)
from plimsoll_core.messages.security import OnBehalf
from plimsoll_core.security.acl import ANONYMOUS
from plimsoll_operator.controller.controller_term import Controller
from plimsoll_operator.controller.forwarded_requests import FORWARDED_MAX
from plimsoll_wire import control


def listening(controller: Controller) -> list[Request]:
    """What the controller is asked from now on."""
    heard: list[Request] = []
    submit = controller.submit

    def note(request: Request) -> asyncio.Future[Answer]:
        heard.append(request)
        return submit(request)

    controller.submit = note  # type: ignore[method-assign]
    return heard


def send(
    peer: Peer, correlation_id: int, request: BrokerRequest, controller_epoch: int = 0
) -> None:
    """Ask without waiting for the answer."""
    command = control.Command(
        cluster_id=CLUSTER,
        controller_epoch=ControllerEpoch(controller_epoch),
        request=request,
    )
    peer.writer.write(control.encode_request(correlation_id, "test", command))


async def test_waiting_client_requests_never_delay_heartbeats() -> None:
    """The API server hangs: a broker that is alive must not look silent for its clients' sake."""
    log = MemoryLog()
    async with serving(log=log) as (server, controller):
        heard = listening(controller)
        peer, listener = await Peer.to(server), await a_listener()
        epoch = await unfenced(peer, controller, listener.sockets[0].getsockname()[1])
        heard.clear()
        log.gate.clear()
        unanswered = controller.submit(SetMembers(broker_ids=(BrokerId(4),)))
        for number in range(FORWARDED_MAX):
            send(peer, number, CreateTopics(topics=()))
        async with asyncio.timeout(WAIT_S):
            while len(heard) < FORWARDED_MAX + 1:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0)
        send(peer, 100, a_heartbeat(epoch))
        send(peer, 101, CreateTopics(topics=()))
        frame = await peer.frame()
        assert control.reply_correlation_id(frame) == 101
        answer = control.decode_command_reply(frame).answer
        assert isinstance(answer, Refused)
        assert (answer.reason, answer.code) == ("TooManyWaiting", 89)
        assert any(isinstance(request, Heartbeat) for request in heard)
        log.gate.set()
        await unanswered
        for _ in range(FORWARDED_MAX + 1):
            await peer.frame()
        listener.close()
        reply = await peer.command(CreateTopics(topics=()))
        assert not isinstance(reply.answer, Refused), "whoever was answered makes room"
        await peer.close()


async def test_many_connections_leave_room_for_others() -> None:
    log = MemoryLog()
    async with serving(log=log) as (server, controller):
        heard = listening(controller)
        peer, listener = await Peer.to(server), await a_listener()
        await unfenced(peer, controller, listener.sockets[0].getsockname()[1])
        heard.clear()
        log.gate.clear()
        unanswered = controller.submit(SetMembers(broker_ids=(BrokerId(4),)))
        greedy = OnBehalf(principal=ANONYMOUS, host="10.0.0.1")
        for number in range(FORWARDED_MAX):
            send(peer, number, CreateTopics(topics=(), behalf=greedy))
        refused = [await peer.frame() for _ in range(FORWARDED_MAX // 2)]
        answer = control.decode_command_reply(refused[0]).answer
        assert isinstance(answer, Refused)
        assert (answer.reason, answer.code) == ("TooManyWaiting", 89)
        assert f"because {FORWARDED_MAX // 2} requests from this client" in answer.message
        other = CreateTopics(topics=(), behalf=OnBehalf(principal="User:ann", host="10.0.0.1"))
        send(peer, 200, other)
        async with asyncio.timeout(WAIT_S):
            while other not in heard:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0)
        log.gate.set()
        await unanswered
        listener.close()
        await peer.close()


async def test_older_proposal_is_never_decided_after_newer() -> None:
    """The leader was answered over the newer one; what it left behind must change nothing."""
    async with serving() as (server, controller):
        older, newer = await Peer.to(server), await Peer.to(server)
        listener = await a_listener()
        epoch = await unfenced(older, controller, listener.sockets[0].getsockname()[1])
        term = controller.epoch
        proposal = AlterPartition(broker_id=BrokerId(0), broker_epoch=epoch, proposals=())
        assert isinstance(
            (await older.command(proposal, controller_epoch=term)).answer, PartitionsAnswer
        )
        await newer.command(a_heartbeat(epoch))
        assert isinstance(
            (await older.command(proposal, controller_epoch=term)).answer, PartitionsAnswer
        ), "a heartbeat that only looks for the controller takes nothing over"
        assert isinstance(
            (await newer.command(proposal, controller_epoch=term)).answer, PartitionsAnswer
        )
        heard = listening(controller)
        send(older, 8, proposal, term)
        send(older, 9, proposal, term)
        assert await older.closed()
        assert isinstance(
            (await newer.command(proposal, controller_epoch=term)).answer, PartitionsAnswer
        )
        assert len([asked for asked in heard if isinstance(asked, AlterPartition)]) == 1
        listener.close()
        await older.close()
        await newer.close()


async def test_proposal_to_earlier_term_is_not_decided() -> None:
    """A copy that was delayed over failovers comes after its leader was told "not applied"."""
    async with serving() as (server, controller):
        peer, listener = await Peer.to(server), await a_listener()
        epoch = await unfenced(peer, controller, listener.sockets[0].getsockname()[1])
        proposal = AlterPartition(broker_id=BrokerId(0), broker_epoch=epoch, proposals=())
        heard = listening(controller)
        for term in (controller.epoch - 1, controller.epoch + 1):
            reply = await peer.command(proposal, controller_epoch=term)
            assert isinstance(reply.answer, Refused)
            assert (reply.answer.reason, reply.answer.code) == ("StaleControllerEpoch", 11)
            assert reply.controller_epoch == controller.epoch, "the broker learns the term by it"
        assert not any(isinstance(asked, AlterPartition) for asked in heard)
        reply = await peer.command(proposal, controller_epoch=controller.epoch)
        assert isinstance(reply.answer, PartitionsAnswer)
        listener.close()
        await peer.close()
