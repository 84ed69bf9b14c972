"""What tools are told of groups."""

import pytest
from tests.plimsoll_core.groups.coordinator_model import (
    CoordinatorModel,
    a_commit,
    store,
)

from plimsoll_core.errors import Code
from plimsoll_core.groups import operations as o


def test_group_is_described_by_what_it_stored(model: CoordinatorModel) -> None:
    assert model.ask(o.DescribeGroup(group_id="g")) is Code.GROUP_ID_NOT_FOUND
    model.ask(a_commit(("orders", 0, 10)))
    assert model.ask(o.DescribeGroup(group_id="g")) == o.GroupDescribed(
        state="Empty", protocol_type="", protocol=""
    )
    store(model, "s1")
    assert model.ask(o.DescribeGroup(group_id="g")) == o.GroupDescribed(
        state="Stable",
        protocol_type="consumer",
        protocol="range",
        members=(o.DescribedMember("s1", "S1", "c", "h", b"s", b"a"),),
    )


@pytest.mark.parametrize(
    ("states", "types", "names"),
    [
        ((), (), ["g", "h"]),
        (("empty",), (), ["h"]),
        (("Stable", "Dead"), ("classic",), ["g"]),
        ((), ("consumer",), []),
    ],
)
def test_groups_are_listed_by_state_and_type(
    model: CoordinatorModel, states: tuple[str, ...], types: tuple[str, ...], names: list[str]
) -> None:
    store(model, "m1")
    model.ask(a_commit(("orders", 0, 1), group="h"))
    answer = model.ask(o.ListGroups(states=states, types=types))
    assert isinstance(answer, o.GroupsListed)
    assert [one.group_id for one in answer.groups] == names
    assert {one.group_type for one in answer.groups} <= {"classic"}, "as Kafka spells it"
