"""Membership, producer ids, topic configs: the small decisions."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_core.cluster.cluster_configs import BROKER_DEFAULTS, broker_configs
from plimsoll_core.cluster.topic_configs import (
    BY_NAME,
    FLOORS,
    KEYS,
    below_floor,
    check_configs,
    client_configs,
    integer_of,
    raised,
    split_min_isr,
    value_of,
)
from plimsoll_core.controller import decide
from plimsoll_core.controller.brokers.membership import IdRange, next_members
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.messages.requests import (
    AllocateProducerIds,
    Done,
    ProducerIdBlock,
    SetMembers,
    Tick,
)


class TestSlices:
    def test_endless_decision_is_reported_as_fault(
        self, world: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def spin(turn: Any, request: Any) -> Done:
            turn.again = request
            return Done()

        monkeypatch.setitem(decide._RULES, Tick, spin)
        with pytest.raises(AssertionError, match="no progress"):
            world.decide(Tick())


def one_range(count: int) -> tuple[IdRange]:
    return (IdRange(0, None, count),)


class TestMembership:
    """R20: sticky and committed."""

    @pytest.mark.parametrize(
        ("current", "count", "excluded", "expected"),
        [
            ((), 3, (), (0, 1, 2)),
            ((0, 1, 2), 2, (1,), (0, 2)),
            ((0, 2), 2, (), (0, 2)),
            ((0, 1, 2), 3, (1,), (0, 2, 3)),
            ((0, 2, 3), 3, (), (0, 2, 3)),
            ((0, 1, 2), 2, (), (0, 1)),
            ((0, 2), 3, (), (0, 1, 2)),
            ((), 2, (0, 1), (2, 3)),
        ],
    )
    def test_examples(self, current: Any, count: int, excluded: Any, expected: Any) -> None:
        assert next_members(current, one_range(count), excluded) == expected

    @given(
        st.sets(st.integers(0, 9), max_size=6),
        st.integers(1, 8),
        st.sets(st.integers(0, 9), max_size=5),
    )
    def test_lifting_an_exclusion_removes_nobody(
        self, current: set[int], count: int, excluded: set[int]
    ) -> None:
        members = next_members(current, one_range(count), excluded)
        assert len(members) == count
        assert not set(members) & excluded
        assert next_members(members, one_range(count), ()) == members
        assert next_members(members, one_range(count), excluded) == members

    @pytest.mark.parametrize(
        ("current", "counts", "excluded", "expected"),
        [
            ((), (3, 2), (), (0, 1, 2, 100, 101)),
            ((0, 1, 2), (0, 3), (), (100, 101, 102)),
            ((0, 1, 2, 100), (2, 1), (), (0, 1, 100)),
            ((0, 1, 100, 101), (2, 2), (0, 101), (1, 2, 100, 102)),
            ((0, 1, 200, 201), (2, 0), (), (0, 1)),
            ((), (0, 2), tuple(range(100, 199)), (199,)),
        ],
        ids=["new", "moved", "smaller", "excluded", "without pool", "no id free"],
    )
    def test_pools_keep_to_their_own_ids(
        self, current: Any, counts: Any, excluded: Any, expected: Any
    ) -> None:
        ranges = [IdRange(100 * at, 100 * at + 100, count) for at, count in enumerate(counts)]
        assert next_members(current, ranges, excluded) == expected

    def test_member_list_is_committed_once(self, world: Any) -> None:
        assert world.ask(SetMembers(broker_ids=(2, 0, 1))) == Done()
        assert world.image.members == (0, 1, 2)
        end = len(world.log)
        world.ask(SetMembers(broker_ids=(0, 1, 2)))
        assert len(world.log) == end

    def test_cluster_of_nobody_is_refused(self, world: Any) -> None:
        assert world.ask(SetMembers(broker_ids=())).reason == "InvalidRequest"


class TestProducerIds:
    def test_blocks_never_overlap_over_terms(self, world: Any) -> None:
        blocks = []
        for broker in (0, 1, 0):
            epoch = world.image.brokers[broker].broker_epoch
            blocks.append(world.ask(AllocateProducerIds(broker_id=broker, broker_epoch=epoch)))
            world.take_over()
        assert blocks == [ProducerIdBlock(first=n * 1_000, length=1_000) for n in range(3)]

    def test_stale_broker_gets_none(self, world: Any) -> None:
        answer = world.ask(AllocateProducerIds(broker_id=0, broker_epoch=99))
        assert answer.code == 77


class TestConfigs:
    def test_config_defaults_are_all_legal_values(self) -> None:
        for key in KEYS:
            assert key.parse(key.default) is not None
            assert check_configs({key.name: key.default}) is None
        assert [key.name for key in KEYS] == sorted(key.name for key in KEYS)

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("retention.ms", "-2"),
            ("retention.ms", "1e3"),
            ("retention.ms", " 5"),
            ("retention.ms", "٣"),
            ("retention.ms", "9" * 400),
            ("segment.bytes", "0"),
            ("index.interval.bytes", str(2**16 + 1)),
            ("max.message.bytes", str(2**31)),
            ("flush.messages", "0"),
            ("compression.type", "none"),
            ("compression.type", "LZ4"),
            ("compression.zstd.level", "4"),
            ("message.timestamp.type", "createtime"),
        ],
    )
    def test_ill_typed_value_refusal_names_expected_type(self, name: str, text: str) -> None:
        refusal = check_configs({name: text})
        assert refusal is not None
        assert refusal.reason is Reason.InvalidConfig
        assert f"{name} must be" in refusal.message
        assert len(refusal.message) < 400

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("retention.mss", "similar are retention.ms, "),
            ("num.io.threads", "none of Kafka's is similar."),
            ("x" * 30_000, "none of Kafka's is similar."),
        ],
    )
    def test_unknown_config_is_refused_with_similar_ones(self, name: str, words: str) -> None:
        refusal = check_configs({name: "1"})
        assert refusal is not None
        assert refusal.reason is Reason.InvalidConfig
        assert words in refusal.message
        assert len(refusal.message) < 400, "not a list of all that there are"
        assert len(refusal.message) < len(name) + 200

    def test_values_come_typed_with_their_defaults(self) -> None:
        assert integer_of({"retention.ms": "-1"}, "retention.ms") == -1
        assert integer_of({}, "retention.ms") == 604_800_000
        assert value_of({}, "message.timestamp.type") == "CreateTime"

    def test_min_isr_is_split_off_for_clients(self) -> None:
        configs = {"min.insync.replicas": "2", "flush.ms": "1"}
        assert split_min_isr(configs) == ({"flush.ms": "1"}, 2)
        assert split_min_isr({"flush.ms": "1"}) == ({"flush.ms": "1"}, None)
        assert isinstance(split_min_isr({"min.insync.replicas": "two"}), Refusal)

    def test_too_small_segment_config_is_refused_but_kept(
        self,
    ) -> None:
        small = {"segment.bytes": "14"}
        refusal = client_configs(small)
        assert isinstance(refusal, Refusal)
        assert (
            refusal.message
            == "The topic config segment.bytes must be at least 1048576 for clients."
        )
        assert client_configs(small, small) == (small, None)
        assert check_configs(small) is None

    @pytest.mark.parametrize("name", FLOORS)
    def test_config_for_tiny_segments_is_refused_but_kept(self, name: str) -> None:
        tiny, least = {name: str(FLOORS[name] - 1)}, str(FLOORS[name])
        for refusal in (client_configs(tiny), below_floor(tiny, {})):
            assert isinstance(refusal, Refusal)
            assert f"{name} must be at least " in refusal.message
        assert client_configs(tiny, tiny) == (tiny, None)
        assert below_floor(tiny, tiny) is None
        assert below_floor({name: least}, {}) is None

    def test_stored_value_below_its_floor_is_raised(self) -> None:
        stored = {"segment.index.bytes": "4", "segment.ms": "1", "retention.ms": "1"}
        assert raised(stored, {}) == {"segment.index.bytes": "65536", "segment.ms": "60000"}
        own = {"segment.index.bytes": "4096", "segment.ms": "7"}
        assert raised(stored, own) == own, "the cluster's own defaults may be lower"
        assert raised({"segment.ms": "60000"}, {}) == {}

    def test_stored_too_large_index_interval_is_reduced(self) -> None:
        """A client may set other configs of a topic that has it from earlier."""
        stored = {"index.interval.bytes": str(2**31 - 1)}
        refusal = client_configs(stored)
        assert isinstance(refusal, Refusal)
        assert "index.interval.bytes must be a whole number from 0 to 65536" in refusal.message
        kept = {"index.interval.bytes": "65536", "flush.ms": "1"}
        assert client_configs({**stored, "flush.ms": "1"}, stored) == (kept, None)

    @pytest.mark.parametrize(
        ("name", "text", "sentence"),
        [
            ("preallocate", "true", "must be false: segments grow as they are written, not"),
            ("segment.jitter.ms", "5", "must be 0: "),
            ("remote.storage.enable", "true", "their own volume"),
            ("leader.replication.throttled.replicas", "*", "spec.movement.bytesPerSecond"),
            ("follower.replication.throttled.replicas", "0:1", "must be empty: "),
        ],
    )
    def test_config_without_effect_is_accepted_at_default(
        self, name: str, text: str, sentence: str
    ) -> None:
        default = BY_NAME[name].default
        assert client_configs({name: f" {default.upper()} "}) == ({name: default}, None)
        refusal = client_configs({name: text})
        assert isinstance(refusal, Refusal)
        assert refusal.reason is Reason.InvalidConfig
        assert sentence in refusal.message


class TestBrokerConfigs:
    """What a cluster's `config` may say, as its brokers read it."""

    def test_broker_config_names_are_all_known(self) -> None:
        pairs = BROKER_DEFAULTS.items()
        stated = {name: BY_NAME[key].default for name, key in pairs if key in BY_NAME}
        stated |= {"replica.lag.time.max.ms": "1", "log.index.interval.bytes": "0"}
        assert broker_configs(stated) == stated

    @pytest.mark.parametrize(
        ("stated", "read"),
        [
            ({"log.retention.hours": "168"}, {"log.retention.ms": "604800000"}),
            ({"log.retention.minutes": "2"}, {"log.retention.ms": "120000"}),
            ({"log.retention.hours": "-1"}, {"log.retention.ms": "-1"}),
            ({"log.roll.hours": "1"}, {"log.roll.ms": "3600000"}),
        ],
    )
    def test_longer_units_become_milliseconds(self, stated: Any, read: Any) -> None:
        assert broker_configs(stated) == read

    def test_finer_unit_wins(self) -> None:
        """As in Kafka: ms before minutes before hours."""
        stated = {"log.retention.hours": "1", "log.retention.minutes": "2"}
        assert broker_configs(stated) == {"log.retention.ms": "120000"}
        assert broker_configs({**stated, "log.retention.ms": "3"}) == {"log.retention.ms": "3"}

    @pytest.mark.parametrize(
        ("name", "text", "words"),
        [
            ("log.retention.hours", "a week", "log.retention.hours must be a whole number"),
            ("log.retention.hours", "\u00b2", "log.retention.hours must be a whole number"),
            ("log.retention.hours", "9" * 10, "log.retention.hours must be a whole number"),
            ("log.roll.hours", "0", "log.roll.ms must be a whole number from 1"),
            ("replica.lag.time.max.ms", "0", "replica.lag.time.max.ms must be"),
            ("log.index.interval.bytes", "65537", "a whole number from 0 to 65536"),
            ("log.segment.bytes", "13", "log.segment.bytes must be a whole number from 14"),
            ("num.io.threads", "8", "There is no broker config num.io.threads"),
            ("log.retention.mss", "8", "log.retention.mss; similar are log.retention.ms"),
            ("x" * 9_000, "8", "none of Kafka's is similar"),
        ],
    )
    def test_unknown_or_ill_typed_broker_config_is_refused(
        self, name: str, text: str, words: str
    ) -> None:
        """ "unknown key -> InvalidConfig", and so is an ill-typed value."""
        refusal = broker_configs({name: text})
        assert isinstance(refusal, Refusal)
        assert refusal.reason is Reason.InvalidConfig
        assert words in refusal.message
