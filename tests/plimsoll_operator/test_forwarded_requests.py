"""How clients share the requests that their broker may have waiting at the controller."""

from __future__ import annotations

import asyncio

from plimsoll_core.messages.requests import CreateTopics
from plimsoll_core.messages.security import OnBehalf
from plimsoll_core.security.acl import ANONYMOUS
from plimsoll_operator.controller.forwarded_requests import FORWARDED_MAX, ForwardedRequests


def asked(principal: str = ANONYMOUS, host: str = "10.0.0.1") -> CreateTopics:
    return CreateTopics(topics=(), behalf=OnBehalf(principal=principal, host=host))


def taken(
    share: ForwardedRequests, request: CreateTopics, times: int
) -> list[asyncio.Future[None]]:
    """Of so many like it, those that are not refused."""
    works = []
    for _ in range(times):
        if share.refusal(request) is None:
            works.append(asyncio.get_running_loop().create_future())
            share.begun(request, works[-1])
    return works


async def test_one_client_takes_at_most_half_room() -> None:
    share = ForwardedRequests()
    found = [len(taken(share, asked(f"User:{name}"), FORWARDED_MAX)) for name in "abcde"]
    assert found == [32, 16, 8, 4, 2]


async def test_clients_that_ask_in_turns_have_equal_parts() -> None:
    share, parts = ForwardedRequests(), [0, 0, 0]
    for _ in range(FORWARDED_MAX):
        for client in range(3):
            parts[client] += len(taken(share, asked(f"User:{client}"), 1))
    assert parts == [16, 16, 16]


async def test_client_is_user_or_address_without_login() -> None:
    share = ForwardedRequests()
    for number in range(FORWARDED_MAX):
        taken(share, asked("User:ann", f"10.0.0.{number}"), 1)
    assert share.refusal(asked("User:ann", "10.1.0.0")) is not None
    assert share.refusal(asked(host="10.0.0.1")) is None
    assert len(taken(share, asked(host="10.0.0.1"), FORWARDED_MAX)) == FORWARDED_MAX // 4
    assert share.refusal(asked(host="10.0.0.2")) is None


async def test_unattributed_requests_have_only_total_bound() -> None:
    share = ForwardedRequests()
    assert len(taken(share, CreateTopics(topics=()), FORWARDED_MAX + 1)) == FORWARDED_MAX
    assert share.refusal(asked()) is not None


async def test_request_that_was_answered_makes_room() -> None:
    share = ForwardedRequests()
    (first, *_) = taken(share, asked(), FORWARDED_MAX)
    assert share.refusal(asked()) is not None
    first.set_result(None)
    await asyncio.sleep(0)
    assert share.refusal(asked()) is None
