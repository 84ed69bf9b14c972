"""DescribeConfigs: which configs a broker has, and of which types they are."""

import pytest
from tests.plimsoll_broker.test_admin_handlers import describe_configs


def test_broker_configs_exclude_topic_configs():
    by_name = {config.name: config for config in describe_configs(4, 4, "1").configs}
    assert (by_name["group.max.size"].value, by_name["group.max.size"].config_source) == ("2000", 5)
    assert "log.preallocate" in by_name
    assert not {"preallocate", "remote.storage.enable"} & by_name.keys()


@pytest.mark.parametrize(
    ("kind", "name", "types"),
    [
        (
            2,
            "orders",
            {
                "cleanup.policy": 7,
                "compression.zstd.level": 3,
                "index.interval.bytes": 3,
                "min.cleanable.dirty.ratio": 6,
                "preallocate": 1,
                "retention.ms": 5,
                "segment.index.bytes": 3,
            },
        ),
        (
            4,
            "1",
            {
                "log.cleaner.io.max.bytes.per.second": 6,
                "log.cleanup.policy": 7,
                "log.segment.bytes": 3,
                "max.connections.per.ip.overrides": 2,
                "offsets.topic.replication.factor": 4,
                "replica.lag.time.max.ms": 5,
            },
        ),
    ],
)
def test_types_of_configs_are_kafkas(kind, name, types):
    by_name = {one.name: one.config_type for one in describe_configs(4, kind, name).configs}
    assert {key: by_name[key] for key in types} == types
