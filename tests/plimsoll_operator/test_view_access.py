"""Who may read the operator's HTTP view: nobody without a token that was made for it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from tests.plimsoll_operator.builders import an_image, with_topic

from plimsoll_core.controller.kernel.volatile_state import VolatileState
from plimsoll_operator.kube.errors import Unavailable
from plimsoll_operator.process.http_server import HttpServer
from plimsoll_operator.process.view_access import (
    FIRST_MAX,
    OF_SOURCE_MAX,
    REMEMBERED_MAX,
    REVIEWS_AT_ONCE,
    WAITING_MAX,
    ViewAccess,
)
from plimsoll_operator.status.operator_metrics import Metrics

AUDIENCE = "plimsoll.dev/view"
KEY = ("kafka", "main")
HEADER = "X-Plimsoll-Authorization"
TOPIC = "/v1/clusters/kafka/main/topics/orders"


class Reviews:
    """The API server, as far as it reviews tokens and what their bearers may do."""

    def __init__(self) -> None:
        self.users = {"good": "reader", "other": "stranger"}
        self.allowed = {("reader", "kafka", "main")}
        self.asked: list[dict[str, Any]] = []
        self.down = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def create(self, kind: Any, manifest: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(manifest)
        await self.gate.wait()
        if self.down:
            raise Unavailable(0, "POST /x answered: connection refused")
        spec = manifest["spec"]
        if kind.kind == "TokenReview":
            name = self.users.get(spec["token"])
            if name is None:
                return {"status": {"authenticated": False}}
            groups = ["system:authenticated"]
            audiences = ["https://kubernetes"] if name == "for-the-api" else spec["audiences"]
            user = {"username": name, "uid": "7", "groups": groups}
            return {"status": {"authenticated": True, "user": user, "audiences": audiences}}
        what = spec["resourceAttributes"]
        yes = (spec["user"], what["namespace"], what["name"]) in self.allowed
        return {"status": {"allowed": yes}}


def access(reviews: Reviews, now: list[int] | None = None) -> ViewAccess:
    clock = now or [0]
    return ViewAccess(reviews, lambda: clock[0])  # type: ignore[arg-type]


def sent(token: str, name: str = HEADER) -> dict[str, str]:
    return {name: f"Bearer {token}"}


async def test_token_is_reviewed_for_audience_and_cluster() -> None:
    reviews = Reviews()
    assert await access(reviews).check(sent("good"), KEY) is None
    token, subject = (one["spec"] for one in reviews.asked)
    assert token == {"token": "good", "audiences": [AUDIENCE]}
    assert (subject["user"], subject["groups"]) == ("reader", ["system:authenticated"])
    assert subject["resourceAttributes"] == {
        "group": "plimsoll.dev",
        "resource": "logclusters",
        "subresource": "view",
        "verb": "get",
        "namespace": "kafka",
        "name": "main",
    }


@pytest.mark.parametrize(
    ("headers", "key", "status"),
    [
        ({}, KEY, 401),
        (sent(""), KEY, 401),
        ({HEADER: "Basic Z29vZA=="}, KEY, 401),
        (sent("x" * 20_000), KEY, 401),
        (sent("unknown"), KEY, 401),
        (sent("b\udcff"), KEY, 401),  # as aiohttp gives bytes that are no UTF-8
        (sent("other"), KEY, 403),
        (sent("good"), ("kafka", "another"), 403),
        (sent("good", "Authorization"), ("team", "main"), 403),
    ],
)
async def test_everything_else_is_refused(
    headers: dict[str, str], key: tuple[str, str], status: int
) -> None:
    denied = await access(Reviews()).check(headers, key)
    assert denied is not None
    assert denied.status == status
    assert "good" not in denied.message, "no token in a sentence"


async def test_token_for_the_api_server_opens_nothing_here() -> None:
    reviews = Reviews()
    reviews.users["api"] = "for-the-api"
    reviews.allowed.add(("for-the-api", *KEY))
    denied = await access(reviews).check(sent("api"), KEY)
    assert denied is not None
    assert denied.status == 401


async def test_verdict_is_remembered_for_seconds() -> None:
    reviews, now = Reviews(), [0]
    checked = access(reviews, now)
    for _ in range(3):
        assert await checked.check(sent("good"), KEY) is None
    assert len(reviews.asked) == 2
    reviews.allowed.clear()
    now[0] += 10_001
    denied = await checked.check(sent("good"), KEY)
    assert denied is not None
    assert denied.status == 403


async def test_api_server_without_reviews_admits_nobody() -> None:
    reviews = Reviews()
    reviews.down = True
    checked = access(reviews)
    denied = await checked.check(sent("good"), KEY)
    assert denied is not None
    assert denied.status == 503
    reviews.down = False
    assert await checked.check(sent("good"), KEY) is None


async def test_flood_of_tokens_is_bounded() -> None:
    reviews = Reviews()
    reviews.gate.clear()
    checked = access(reviews)
    asking = [
        asyncio.ensure_future(checked.check(sent(f"t{n}"), KEY, f"10.0.0.{n % 8}"))
        for n in range(2 * WAITING_MAX)
    ]
    await asyncio.sleep(0)
    busy = [one.result() for one in asking if one.done()]
    assert len(busy) == WAITING_MAX
    assert all(denied is not None and denied.status == 503 for denied in busy)
    assert len(reviews.asked) <= REVIEWS_AT_ONCE
    reviews.gate.set()
    await asyncio.gather(*asking)


async def test_false_tokens_block_no_other_address() -> None:
    reviews = Reviews()
    reviews.gate.clear()
    checked = access(reviews)
    false = [
        asyncio.ensure_future(checked.check(sent(f"t{n}"), KEY, f"10.0.0.{n % 40}"))
        for n in range(400)
    ]
    await asyncio.sleep(0)
    good = asyncio.ensure_future(checked.check(sent("good"), KEY, "10.9.9.9"))
    await asyncio.sleep(0)
    reviews.gate.set()
    assert await good is None
    denied = [one for one in await asyncio.gather(*false) if one is not None]
    assert {one.status for one in denied} == {401, 503}
    assert sum(one.status == 401 for one in denied) <= FIRST_MAX


async def test_reviews_per_address_are_bounded() -> None:
    reviews = Reviews()
    reviews.gate.clear()
    checked = access(reviews)
    asking = [
        asyncio.ensure_future(checked.check(sent(f"t{n}"), KEY, "10.0.0.1")) for n in range(100)
    ]
    await asyncio.sleep(0)
    reviews.gate.set()
    told = [one.status for one in await asyncio.gather(*asking) if one is not None]
    assert (told.count(401), told.count(503)) == (OF_SOURCE_MAX, 100 - OF_SOURCE_MAX)


async def test_admitted_token_is_reviewed_before_false_ones() -> None:
    reviews, now = Reviews(), [0]
    checked = access(reviews, now)
    assert await checked.check(sent("good"), KEY) is None
    now[0] += 10_001
    reviews.gate.clear()
    false = [
        asyncio.ensure_future(checked.check(sent(f"t{n}"), KEY, f"10.0.0.{n}"))
        for n in range(2 * FIRST_MAX)
    ]
    await asyncio.sleep(0)
    before = len(reviews.asked)
    good = asyncio.ensure_future(checked.check(sent("good"), KEY))
    await asyncio.sleep(0)
    assert [one["spec"]["token"] for one in reviews.asked[before:]] == ["good"]
    reviews.gate.set()
    assert await good is None
    await asyncio.gather(*false)


@pytest.mark.parametrize(("token", "reviews_each"), [("good", 2), ("unknown", 1)])
async def test_waiters_with_one_token_share_the_review(token: str, reviews_each: int) -> None:
    reviews, now = Reviews(), [0]
    checked = access(reviews, now)
    for _ in range(2):  # the second time a good token has reviews of its own
        before = len(reviews.asked)
        reviews.gate.clear()
        asking = [
            asyncio.ensure_future(checked.check(sent(token), KEY, f"10.0.0.{n}"))
            for n in range(WAITING_MAX)
        ]
        await asyncio.sleep(0)
        reviews.gate.set()
        told = await asyncio.gather(*asking)
        assert {None if one is None else one.status for one in told} == {
            None if token == "good" else 401
        }
        assert len(reviews.asked) - before <= REVIEWS_AT_ONCE * reviews_each
        now[0] += 10_001


async def test_false_tokens_displace_no_admitted_verdict() -> None:
    reviews = Reviews()
    checked = access(reviews)
    assert await checked.check(sent("good"), KEY) is None
    for number in range(2 * REMEMBERED_MAX):
        await checked.check(sent(f"t{number}"), KEY)
    before = len(reviews.asked)
    assert await checked.check(sent("good"), KEY) is None
    assert len(reviews.asked) == before


def a_leader() -> Any:
    image = with_topic(an_image(), ((0, 1, 2),))
    controller = SimpleNamespace(
        image=image, active=True, epoch=1, now_ms=0, soft=VolatileState(), outlook=None
    )
    return SimpleNamespace(controller=controller, term=SimpleNamespace(key=KEY))


async def test_view_is_never_open_and_metrics_unchanged() -> None:
    reviews = Reviews()
    leaders = {KEY: a_leader()}
    parts: Any = SimpleNamespace(
        metrics=Metrics(), leaders=leaders, options=SimpleNamespace(identity="op-1")
    )
    health = HttpServer(parts, lambda: True, access(reviews).check)
    await health.start(0, 0)
    try:
        port = next(port for host, port, *_ in health.addresses[0] if ":" not in host)
        async with aiohttp.ClientSession() as client:

            async def get(path: str, **headers: str) -> tuple[int, Any]:
                url = f"http://127.0.0.1:{port}{path}"
                async with client.get(url, headers=headers) as response:
                    json = response.content_type == "application/json"
                    return response.status, await response.json() if json else None

            assert (await get("/metrics"))[0] == 200
            asks = "/rights?principal=User:a&host=*&operation=Read&resource=Topic:orders"
            views = ("", "/topics", "/topics/orders", "/brokers", "/what-if?brokers=1", "/history")
            for view in (*views, asks):
                path = f"/v1/clusters/kafka/main{view}"
                assert (await get(path))[0] == 401, path
                assert (await get(path, **sent("other")))[0] == 403, path
            assert (await get("/v1/clusters"))[0] == 401
            assert (await get("/v1/clusters", **sent("other"))) == (200, {"clusters": []})
            status, found = await get(TOPIC, **sent("good"))
            assert status == 200
            assert found["partitions"][0]["isr"] == [0, 1, 2]
            status, found = await get(f"/v1/clusters/kafka/main{asks}", **sent("good"))
            assert (status, found["allowed"], found["mode"]) == (200, False, "Off")
            status, found = await get("/v1/clusters/kafka/main/rights", **sent("good"))
            assert (status, found["error"][:17]) == (400, "Write a principal")
            status, found = await get("/v1/clusters", **sent("good", "Authorization"))
            assert [one["cluster"] for one in found["clusters"]] == ["main"]
            leaders.clear()
            assert (await get("/v1/clusters"))[0] == 401
            assert (await get(TOPIC, **sent("good")))[0] == 404
    finally:
        await health.close()
