"""A topic of many partitions delays no other request while its logs are created."""

from __future__ import annotations

from collections.abc import Callable

from tests.holding import nothing_holds_the_loop
from tests.plimsoll_broker.test_replication import until
from tests.plimsoll_broker.trio import Broker, Controller, a_batch

from plimsoll_broker.replication.partition_opener import OPENED_AT_ONCE
from plimsoll_core.errors import Code

Make = Callable[[int], Broker]
MANY = 500


async def test_new_partitions_are_opened_in_slices(controller: Controller, broker: Make) -> None:
    """All of them in one callback held the loop for a millisecond of CPU each."""
    one = await broker(0).start()
    one.deaf = True
    controller.create("t", *[(0,)] * MANY)
    with nothing_holds_the_loop():
        one.deaf = False
        one.tell()
        await until(lambda: len(one.manager) == MANY)
    client = await one.client()
    assert (await client.produce("t", a_batch(1), index=MANY - 1))[0] == Code.NONE


async def test_partition_deleted_before_its_turn_is_not_opened(
    controller: Controller, broker: Make
) -> None:
    one = await broker(0).start()
    one.deaf = True
    before = controller.image
    controller.create("t", *[(0,)] * 30)
    after = controller.image
    one.manager.apply_image(before, after)
    assert 0 < len(one.manager) <= OPENED_AT_ONCE
    one.manager.apply_image(after, before)
    assert len(one.manager) == 0
    for key in after.partitions:
        one.manager.open_now(key)
    assert len(one.manager) == 0
