"""Who is inside: identities, and the reasons for which a peer is refused."""

from uuid import UUID

import pytest

from plimsoll_core.ids import BrokerId
from plimsoll_core.security.inside import (
    NO_IDENTITY,
    OTHER_CLUSTER,
    OTHER_PEER,
    RETIRED,
    BrokerCertificates,
    Inside,
    InsideMode,
    Peer,
    broker_identity,
    controller_identity,
    peer_named,
    refuses_broker,
    refuses_controller,
    unstated_mode,
)

CLUSTER, OTHER = UUID(int=7), UUID(int=8)
REQUIRED = Inside(
    mode=InsideMode.REQUIRED,
    certificates=(BrokerCertificates(broker_id=BrokerId(1), sha256=("new", "old")),),
)


def broker(number: int = 1, sha256: str = "new", cluster: UUID = CLUSTER) -> Peer:
    found = peer_named((broker_identity(cluster, number),), sha256)
    assert found is not None
    return found


CONTROLLER = peer_named((controller_identity(CLUSTER),), "c")


def test_identities_are_read_as_they_are_written() -> None:
    assert broker(12) == Peer(cluster_id=CLUSTER, broker_id=BrokerId(12), sha256="new")
    assert Peer(cluster_id=CLUSTER, broker_id=None, sha256="c") == CONTROLLER


@pytest.mark.parametrize(
    "identities",
    [
        (),
        (broker_identity(CLUSTER, 1), broker_identity(CLUSTER, 2)),
        (f"plimsoll://{CLUSTER}/broker/01",),
        (f"plimsoll://{CLUSTER}/broker/-1",),
        (f"plimsoll://{CLUSTER}/broker/1/",),
        (f"plimsoll://{CLUSTER}/broker/",),
        (f"plimsoll://{CLUSTER}/broker/{'9' * 400}",),
        (f"plimsoll://{CLUSTER}/broker/\u0661",),
        (f"plimsoll://{CLUSTER}/user/a",),
        (f"plimsoll://{CLUSTER}",),
        (f"plimsoll://{str(CLUSTER).upper()}x/controller",),
        (f"http://{CLUSTER}/controller",),
        ("plimsoll:///controller",),
        ("\x00" * 10_000,),
    ],
)
def test_certificate_without_exactly_one_identity_names_nobody(identities: tuple[str, ...]) -> None:
    assert peer_named(identities, "x") is None


def test_broker_is_trusted_with_committed_certificate() -> None:
    assert not refuses_broker(REQUIRED, CLUSTER, broker(), 1)
    assert not refuses_broker(REQUIRED, CLUSTER, broker(sha256="old"), 1)
    assert not refuses_broker(REQUIRED, CLUSTER, broker())


@pytest.mark.parametrize(
    ("peer", "reason"),
    [
        (None, NO_IDENTITY),
        (broker(cluster=OTHER), OTHER_CLUSTER),
        (broker(2), OTHER_PEER),
        (CONTROLLER, OTHER_PEER),
        (broker(sha256="older"), RETIRED),
    ],
)
def test_other_peers_are_refused_with_a_reason(peer: Peer | None, reason: str) -> None:
    assert refuses_broker(REQUIRED, CLUSTER, peer, 1) == reason


def test_unregistered_brokers_certificate_is_refused() -> None:
    assert refuses_broker(REQUIRED, CLUSTER, broker(2)) == RETIRED
    permissive = Inside(mode=InsideMode.PERMISSIVE)
    assert refuses_broker(permissive, CLUSTER, broker()) == RETIRED
    assert not refuses_broker(Inside(), CLUSTER, broker())


def test_only_this_clusters_controller_is_trusted() -> None:
    assert not refuses_controller(CLUSTER, CONTROLLER)
    assert refuses_controller(OTHER, CONTROLLER) == OTHER_CLUSTER
    assert refuses_controller(CLUSTER, broker()) == OTHER_PEER
    assert refuses_controller(CLUSTER, None) == NO_IDENTITY


@pytest.mark.parametrize(
    ("pinned", "committed", "has_brokers", "wanted"),
    [
        # A new cluster; and one whose operator died before a broker came.
        (None, "Off", False, "Required"),
        # One that was there before.
        (None, "Off", True, "Off"),
        # Its status was lost: the log says that it is closed, or on its way.
        (None, "Permissive", True, "Required"),
        (None, "Required", True, "Required"),
        # What is remembered counts, whatever the log says by now.
        ("Required", "Off", True, "Required"),
        ("Off", "Off", True, "Off"),
        ("Off", "Required", True, "Off"),
        ("Permissive", "Required", True, "Permissive"),
    ],
)
def test_mode_that_nobody_states_is_decided_once(
    pinned: str | None, committed: str, has_brokers: bool, wanted: str
) -> None:
    found = unstated_mode(
        None if pinned is None else InsideMode(pinned),
        InsideMode(committed),
        has_brokers=has_brokers,
    )
    assert found is InsideMode(wanted)
