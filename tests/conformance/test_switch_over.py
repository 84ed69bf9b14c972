"""docs/mirroring.md, carried out: MirrorMaker 2 mirrors a cluster to another one by the files of
examples/mirror; the first is lost, clients switch over with their group's offsets, and back."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conformance.closed_cluster import Decision, allows, decided, is_of, rules_of
from tests.conformance.sites import (
    COPIED,
    EAST,
    GROUP,
    PARTITIONS,
    TOPIC,
    WEST,
    Mirror,
    Readers,
    Site,
    declared_user,
    two_sites,
)
from tests.integration.listening import Load

LAG = 100
"""`offset.lag.max` of the files: how many records of a partition a group reads again at most."""
SAME, BACK, BOTH = "east-to-west", "west-to-east", "both-ways"
IN_EAST, IN_WEST = r"^(west\.)?orders$", r"^(east\.)?orders$"
"""What a group subscribes to where copies have names of their own."""
OF_EAST, OF_WEST = f"{EAST}.{TOPIC}", f"{WEST}.{TOPIC}"
PRODUCER = Decision(f"User:mirror-{WEST}", "Write", "Topic:any")
"""What an idempotent producer needs of some topic: it is one that it writes."""
pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]


def load(site: Site) -> Load:
    return Load(site.bootstrap, topic=TOPIC, **site.login)


def goes_on(site: Site) -> set[bytes]:
    """Some records more, all of which are acknowledged."""
    with load(site) as writer:
        writer.goes_on()
    assert not writer.acked.errors
    return set(writer.acked.records)


def lacks_records(source: Site, target: Site, topic: str) -> str:
    """Which records of the source its copy lacks; "" if none."""
    if not target.has_topic(topic):
        return f"no {topic} in {target.name}"
    missing = source.all_values(TOPIC) - target.all_values(topic)
    return f"{len(missing)} records are not in {topic} of {target.name}" if missing else ""


def lacks_offsets(readers: Readers, target: Site, topic: str) -> str:
    """Why the group cannot go on there yet; that it would skip a record is an error."""
    left = readers.left(target, topic)
    assert not left.skipped, f"{GROUP} would skip {left.skipped[:9]}"
    if left.committed and max(left.again) <= LAG:
        return ""
    return f"{GROUP} would read again {left.again} of {topic} in {target.name}"


def lacks(readers: Readers, source: Site, target: Site, topic: str) -> str:
    """Both."""
    return lacks_records(source, target, topic) or lacks_offsets(readers, target, topic)


def read_rest(readers: Readers, site: Site, subscribed: str, *topics: str) -> set[bytes]:
    """All that the topics hold; what it read."""
    wanted = set().union(*(site.all_values(topic) for topic in topics))
    found = readers.read(site, [subscribed], lambda: wanted <= readers.seen.keys())
    return set(found)


def switch_over(readers: Readers, site: Site, subscribed: str, *topics: str) -> set[bytes]:
    """The group reads on there; few records come again."""
    before = set(readers.seen)
    found = read_rest(readers, site, subscribed, *topics)
    assert len(found & before) <= LAG * PARTITIONS
    return found


def lose_east(mirror: Mirror, readers: Readers, sites: tuple[Site, Site], copy: str) -> set[bytes]:
    """In the middle of writing, with records that the mirror has not fetched; the acknowledged
    ones."""
    east, west = sites
    acked = goes_on(east)
    mirror.wait_until_nothing(lambda: lacks_records(east, west, copy))
    acked |= goes_on(east)
    read_rest(readers, east, TOPIC, TOPIC)
    mirror.wait_until_nothing(lambda: lacks(readers, east, west, copy))
    with load(east) as writer:
        writer.goes_on()
        with mirror.frozen():
            writer.goes_on()
            east.cluster.kill_everything()
        writer.give_up()
    return acked | set(writer.acked.records)


def count_missing(east: Site, west: Site, known: dict[int, int]) -> None:
    """As the page counts: what is behind the last record that has certainly arrived."""
    arrived = west.all_values(TOPIC)
    for partition, held in enumerate(east.held(TOPIC)):
        missing = [value for value in held.values if value not in arrived]
        behind = east.end(partition) - 1 - known.get(partition, -1)
        assert len(missing) <= behind <= len(held.values)


def test_switch_over_and_back_under_same_names(tmp_path: Path) -> None:
    readers = Readers()
    with two_sites(tmp_path, SAME) as (east, west):
        with Mirror(tmp_path, SAME, WEST) as mirror:
            acked = lose_east(mirror, readers, (east, west), TOPIC)
        mirrored = west.all_values(TOPIC)
        assert acked - mirrored, "all had arrived"
        assert not lacks_offsets(readers, west, TOPIC)

        known = west.mirrored_from_east()
        acked |= goes_on(west)
        switch_over(readers, west, TOPIC, TOPIC)
        assert mirrored <= readers.seen.keys()

        east.cluster.start()
        count_missing(east, west, known)
        with Mirror(tmp_path, SAME, WEST) as mirror:
            mirror.wait_until_nothing(lambda: lacks_records(east, west, TOPIC))
        read_rest(readers, west, TOPIC, TOPIC)
        assert acked <= readers.seen.keys()

        change_way(east, west, BACK, emptied=east)
        with Mirror(tmp_path, BACK, EAST) as mirror:
            acked |= goes_on(west)
            read_rest(readers, west, TOPIC, TOPIC)
            mirror.wait_until_nothing(lambda: lacks(readers, west, east, TOPIC))
        acked |= goes_on(east)
        switch_over(readers, east, TOPIC, TOPIC)
        assert acked <= east.all_values(TOPIC)
        assert acked <= readers.seen.keys()

        change_way(east, west, SAME, emptied=west)
        with Mirror(tmp_path, SAME, WEST) as mirror:
            mirror.wait_until_nothing(lambda: lacks(readers, east, west, TOPIC))
        assert_logins_stay_in_files(west)
    assert_nothing_denied(east, west)


def change_way(east: Site, west: Site, way: str, *, emptied: Site) -> None:
    emptied.empty(TOPIC)
    for site in (east, west):
        site.give_rights(way)


def assert_logins_stay_in_files(site: Site) -> None:
    """Connectors' configs are in a topic of MirrorMaker's."""
    configs = site.run(COPIED.replace("mm2-offsets", "mm2-configs"))
    assert "java.properties:sasl.jaas.config" in configs
    assert site.login_file(f"mirror-{site.name}", "password").read_text() not in configs


def assert_nothing_denied(*sites: Site) -> None:
    for site in sites:
        assert decided(site.cluster, "Denied") == set()


def test_switch_over_and_back_with_renamed_topics(tmp_path: Path) -> None:
    readers = Readers()
    with (
        two_sites(tmp_path, BOTH) as (east, west),
        Mirror(tmp_path, BOTH, WEST) as to_west,
        Mirror(tmp_path, BOTH, EAST) as to_east,
    ):
        acked = lose_east(to_west, readers, (east, west), OF_EAST)
        mirrored = west.all_values(OF_EAST)
        assert acked - mirrored, "all had arrived"
        assert not lacks_offsets(readers, west, OF_EAST)
        acked |= goes_on(west)
        read_in_west = switch_over(readers, west, IN_WEST, OF_EAST, TOPIC)
        assert mirrored <= readers.seen.keys()

        east.cluster.start()
        to_west.wait_until_nothing(lambda: lacks_records(east, west, OF_EAST))
        read_in_west |= read_rest(readers, west, IN_WEST, OF_EAST, TOPIC)
        assert acked <= readers.seen.keys()

        to_east.wait_until_nothing(lambda: lacks(readers, west, east, OF_WEST))
        before = set(readers.seen)
        acked |= goes_on(east)
        again = read_rest(readers, east, IN_EAST, TOPIC, OF_WEST) & before
        assert acked <= readers.seen.keys()
        # Of its own topic those that it read as copies; of the copies as few as ever.
        assert again - west.all_values(TOPIC) <= read_in_west
        assert west.has_topic("east.heartbeats")
    assert_nothing_denied(east, west)


def test_each_right_of_the_files_is_asked_for(tmp_path: Path) -> None:
    readers = Readers()
    rules = [rule for name in (EAST, WEST) for rule in rules_of(declared_user(SAME, name))]
    with two_sites(tmp_path, SAME, "Audit") as (east, west):

        def asked() -> set[Decision]:
            return decided(east.cluster, "WouldDeny") | decided(west.cluster, "WouldDeny")

        def unasked() -> list[Decision]:
            return [
                rule
                for rule, prefix in rules
                if not any(is_of(one, rule, prefix) for one in asked())
            ]

        goes_on(east)
        read_rest(readers, east, TOPIC, TOPIC)
        with Mirror(tmp_path, SAME, WEST) as mirror:
            mirror.wait_until_nothing(lambda: lacks(readers, east, west, TOPIC))
        # What it finds when it starts again it reads and checks.
        with Mirror(tmp_path, SAME, WEST) as mirror:
            mirror.wait_until_nothing(lambda: ", ".join(map(str, unasked())))
    more = {one for one in asked() if not any(allows(*rule, one) for rule in rules)}
    assert more == {PRODUCER}
