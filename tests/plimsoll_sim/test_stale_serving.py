"""The predicate about leaders that answer although they were replaced: it holds, and it bites."""

import pytest

from plimsoll_core.replica.leader_lease import LeaderLease
from plimsoll_sim.scenario.runner import play

CUT_OFF = """\
cluster on_controller_loss={wish}
topic orders replicas=1,2,3 min_isr=2
produce a
run 1s
cut 1 2,3,controller
until leader=2
run 7s
latest to=1
"""


def test_replaced_leader_stops_answering_when_its_lease_ends() -> None:
    played = play(CUT_OFF.format(wish="StopServing"))
    assert played.outcome == "held"
    assert played.text.splitlines()[-1] == "NOT_LEADER_OR_FOLLOWER"


def test_endless_lease_is_detected_by_predicate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LeaderLease, "from_controller", lambda *_: True)
    played = play(CUT_OFF.format(wish="StopServing"))
    assert played.outcome == "safety"
    assert "NoStaleServing: orders-0: 1 answers as leader of LE 0" in played.sentence


def test_stale_serving_predicate_skips_clusters_with_keep_serving() -> None:
    played = play(CUT_OFF.format(wish="KeepServing"))
    assert played.outcome == "held"
