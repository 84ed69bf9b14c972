"""How large each replica is, and how full its volume."""

import pytest
from tests.plimsoll_broker.test_delete_records import written
from tests.plimsoll_broker.test_replication import Three, until
from tests.plimsoll_broker.trio import Broker, Controller

from plimsoll_broker.handlers.describe_log_dirs import describe_log_dirs
from plimsoll_broker.handlers.long_work import Aside
from plimsoll_broker.server.dispatch import RequestContext
from plimsoll_broker.storage.disk import Disk, StorageError, StorageFault
from plimsoll_core.errors import Code
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.messages import decode_response, encode_request


async def described(broker: Broker, topics: list[dict] | None, version: int = 4) -> object:
    key = ApiKey.DESCRIBE_LOG_DIRS
    body = memoryview(bytearray(encode_request(key, version, {"topics": topics})))
    handler = describe_log_dirs(broker.manager, Aside())
    reply = await handler(RequestContext(key, version, 1, body))
    (result,) = decode_response(key, version, reply).results
    return result


def sizes(result: object) -> dict[tuple[str, int], int]:
    return {
        (topic.name, each.partition_index): each.partition_size
        for topic in result.topics
        for each in topic.partitions
    }


@pytest.mark.parametrize("version", range(1, 5))
async def test_log_dirs_lists_every_replica_with_size(
    controller: Controller, three: Three, version: int
) -> None:
    controller.create("t", (0, 1, 2), (1, 2, 0))
    await written(three[0])
    result = await described(three[0], None, version)
    log = three[0].hosted("t").log
    assert sizes(result) == {("t", 0): log.size, ("t", 1): 0}
    assert log.size > 0
    assert (result.error_code, result.log_dir) == (Code.NONE, str(three[0].directory))
    assert not any(p.is_future_key or p.offset_lag for t in result.topics for p in t.partitions)
    if version >= 4:
        assert 0 < result.usable_bytes <= result.total_bytes


async def test_only_the_named_partitions_are_told(controller: Controller, three: Three) -> None:
    controller.create("t", (0, 1, 2), (1, 2, 0))
    await until(lambda: three[0].manager.by_name("t", 1) is not None)
    named = [{"topic": "t", "partitions": [1, 9]}, {"topic": "gone", "partitions": [0]}]
    assert sizes(await described(three[0], named)) == {("t", 1): 0}
    assert sizes(await described(three[0], [])) == {}


async def test_volume_that_cannot_be_asked_has_a_code(
    controller: Controller, three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    def room(self: Disk, path: object) -> tuple[int, int]:
        raise StorageError(StorageFault.IO, path, "gone")

    monkeypatch.setattr(Disk, "room", room)
    result = await described(three[0], None)
    assert (result.error_code, result.total_bytes) == (Code.KAFKA_STORAGE_ERROR, -1)
