"""What the log may hold at a metadata version, and what a reader makes of what is newer."""

import json
from collections.abc import Iterator
from uuid import UUID

import msgspec
import pytest

from plimsoll_core.cluster import image_encoding, model
from plimsoll_core.cluster import record_versions as versions
from plimsoll_core.cluster import records as r
from plimsoll_core.cluster.image import append, apply
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.cluster.record_versions import (
    NEWEST,
    OLDEST,
    RELEASES,
    TABLE,
    MetadataTooNew,
    read_records,
)

SNAPSHOT_FIELDS = {
    "_Snapshot": {
        1: "format cluster_id name controller_epoch next_offset members brokers topics partitions"
        " next_producer_id removals_ms reassignments movement_bytes_per_second grants"
        " proven_revision leaving newcomers released rebalances rebalance_rests",
        3: "inside listeners quotas security",
        5: "dismissed hibernated restored terms",
    },
    "StoredSecurity": {
        3: "authorization credentials users acls issuers authorities certificates removals",
    },
    "_Rest": {1: "uid moves active"},
}


def rows() -> Iterator[tuple[type[msgspec.Struct], dict[int, str]]]:
    """Every struct that a log or a snapshot can hold, with its row."""
    found: dict[type[msgspec.Struct], None] = {}
    for kind in (*r.Record.__args__, image_encoding._Snapshot):
        found |= versions.parts_of(kind)
    for kind in found:
        yield kind, TABLE.get(kind) or SNAPSHOT_FIELDS.get(kind.__name__) or {}


EVERY = list(rows())


@pytest.mark.parametrize(("kind", "row"), EVERY, ids=[kind.__name__ for kind, _ in EVERY])
def test_record_kinds_and_fields_name_their_version(
    kind: type[msgspec.Struct], row: dict[int, str]
) -> None:
    named = [name for names in row.values() for name in names.split()]
    assert sorted(named) == sorted(kind.__struct_fields__), f"{kind.__name__} needs a row"
    assert set(row) <= set(RELEASES)


@pytest.mark.parametrize(("kind", "row"), EVERY, ids=[kind.__name__ for kind, _ in EVERY])
def test_stored_structs_forbid_unknown_and_omit_default_fields(
    kind: type[msgspec.Struct], row: dict[int, str]
) -> None:
    assert kind.__struct_config__.forbid_unknown_fields, f"{kind.__name__} drops what it misses"
    for version, names in row.items():
        if version == min(row):
            continue
        newer = [f.default for f in msgspec.structs.fields(kind) if f.name in names.split()]
        # What is unset is never written.
        omitted = kind.__struct_config__.omit_defaults or set(newer) == {msgspec.UNSET}
        assert omitted, f"{kind.__name__} writes what is newer"
        assert msgspec.NODEFAULT not in newer


def test_table_has_no_row_for_what_is_gone() -> None:
    known = {kind for kind, _ in EVERY}
    assert not set(TABLE) - known


def test_metadata_versions_all_have_a_name() -> None:
    assert sorted(RELEASES) == list(range(1, NEWEST + 1))
    assert OLDEST in RELEASES


FINALIZED = r.MetadataVersionFinalized(cause="x", metadata_version=2)


def test_image_has_version_1_until_record_raises_it() -> None:
    image = ClusterImage(cluster_id=UUID(int=1))
    assert image.metadata_version == 1
    assert append(image, FINALIZED).metadata_version == 2


def test_finalised_version_is_never_taken_back() -> None:
    image = append(ClusterImage(cluster_id=UUID(int=1)), FINALIZED)
    with pytest.raises(AssertionError, match="only grow"):
        apply(image, FINALIZED)


def test_kind_newer_than_finalised_version_is_not_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(TABLE, r.MovementLimited, {2: "cause bytes_per_second"})
    monkeypatch.setitem(versions._NEWEST_ROW, r.MovementLimited, 2)
    image = ClusterImage(cluster_id=UUID(int=1))
    limited = r.MovementLimited(cause="x", bytes_per_second=1)
    with pytest.raises(AssertionError, match="MovementLimited belongs to metadata version 2"):
        append(image, limited)
    assert append(append(image, FINALIZED), limited).movement_bytes_per_second == 1


def test_field_newer_than_finalised_version_is_not_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(TABLE, r.RestartEnded, {1: "cause broker_id", 2: "proven"})
    monkeypatch.setitem(versions._NEWEST_ROW, r.RestartEnded, 2)
    plain = r.RestartEnded(cause="x", broker_id=model.BrokerId(1))
    assert versions.newer_than(plain, 1) is None
    stated = msgspec.structs.replace(plain, proven="R")
    assert "RestartEnded.proven" in (versions.newer_than(stated, 1) or "")
    assert versions.newer_than(stated, 2) is None


def test_nested_field_newer_than_finalised_is_not_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(TABLE, model.RebalanceMove, {1: "number topic_id index before after size"})
    monkeypatch.setitem(TABLE[model.RebalanceMove], 2, "wave")
    monkeypatch.setitem(versions._NEWEST_ROW, r.RebalanceMovesAdded, 2)
    move = model.RebalanceMove(number=1, topic_id=UUID(int=1), index=0, before=(), after=(), wave=7)
    added = r.RebalanceMovesAdded(cause="x", uid="u", moves=(move,))
    assert "RebalanceMove.wave" in (versions.newer_than(added, 1) or "")


def test_newer_value_of_older_field_is_not_written() -> None:
    balanced = r.RebalanceNoted(
        cause="x",
        rebalance=model.Rebalance(
            object=model.RebalanceObject(namespace="n", name="b", uid="u"),
            mode="Load",
            phase="Running",
        ),
    )
    assert "Load of the record field Rebalance.mode" in (
        versions.newer_than(balanced, versions.LOAD_SINCE - 1) or ""
    )
    assert versions.newer_than(balanced, versions.LOAD_SINCE) is None


@pytest.mark.parametrize(
    ("item", "named"),
    [
        ({"type": "MoonPhaseChanged", "cause": "x"}, "MoonPhaseChanged"),
        ({"type": "MovementLimited", "cause": "x", "bytes_per_second": 1, "burst": 2}, "burst"),
        (
            {"type": "MetadataVersionFinalized", "cause": "x", "metadata_version": NEWEST + 1},
            f"#{NEWEST + 1}",
        ),
        (
            {
                "type": "TopicOrphaned",
                "cause": "x",
                "topic_id": str(UUID(int=1)),
                "pending": {"since_ms": 1, "until_ms": 2, "moon": "full"},
            },
            "moon",
        ),
    ],
    ids=["kind", "field", "metadata-version", "field of a part"],
)
def test_read_records_names_unknown_item_when_too_new(item: dict[str, object], named: str) -> None:
    known = {"type": "MovementLimited", "cause": "x", "bytes_per_second": 1}
    with pytest.raises(MetadataTooNew, match=named):
        read_records(json.dumps([known, item]).encode())


def test_snapshot_states_the_version_that_can_read_it() -> None:
    image = ClusterImage(cluster_id=UUID(int=1))
    assert json.loads(image_encoding.encode_image(image))["format"] == 1
    newer = append(image, FINALIZED)
    assert json.loads(image_encoding.encode_image(newer))["format"] == 2
    assert image_encoding.decode_image(image_encoding.encode_image(newer)) == newer
