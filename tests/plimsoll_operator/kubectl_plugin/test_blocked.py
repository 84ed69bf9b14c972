"""The verb `blocked`: what of a Reassignment it lists, by the status that the operator writes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.plimsoll_operator.builders import an_image, with_topic
from tests.plimsoll_operator.kubectl_plugin.test_verbs import said, scene
from tests.plimsoll_operator.moving import Moves

from plimsoll_operator.kubectl_plugin import verbs_cluster
from plimsoll_operator.kubectl_plugin.shown import Findings

MOVE = {"topic": "orders", "partitions": [0], "replicas": [3, 4, 0]}
TWICE = [MOVE, MOVE]


async def blocked_by(moves: Moves) -> tuple[str, Findings]:
    """The Reassignment's phase, and what the verb finds."""
    status = await moves.look()
    body = {"metadata": {"name": "move"}, "status": msgspec.to_builtins(status)}
    made: Any = scene(status={}, bodies={"reassignments": [body]})
    return str(status.phase), await verbs_cluster.blocked(made)


@pytest.mark.parametrize(
    ("spec", "ended"),
    [({"moves": TWICE}, "Failed"), ({"cancelled": True}, "Cancelled")],
)
async def test_ended_reassignment_is_not_listed_as_blocked(
    spec: dict[str, Any], ended: str
) -> None:
    phase, found = await blocked_by(Moves(**spec))
    assert phase == ended
    assert found.data["objects"] == []
    assert "Nothing is blocked." in said(found)


async def test_reassignment_with_absent_target_is_listed_as_blocked() -> None:
    moves = Moves(image=with_topic(an_image((0, 1, 2, 3, 4)), ((0, 1, 2),) * 2, holder=None))
    await moves.look()
    await moves.kill(4)
    phase, found = await blocked_by(moves)
    assert phase == "Blocked"
    assert {one["condition"] for one in found.data["objects"]} == {"Ready=False", "Blocked=True"}
    assert "Broker 4 is down" in said(found)
