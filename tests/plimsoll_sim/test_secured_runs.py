"""Runs with certificates, logins and rights: predicates hold, and OpenSSL is in place again."""

from __future__ import annotations

import pytest

from plimsoll_net import handshakes, inside_identity, tls_policy
from plimsoll_operator.pki import authority
from plimsoll_operator.reconcile.cluster import inside
from plimsoll_sim.runs.profiles.security import SECURITY
from plimsoll_sim.runs.run import run
from plimsoll_sim.scenario.runner import play

STEPS = 1_200


@pytest.mark.parametrize("profile", SECURITY)
def test_secured_run_holds_and_restores_openssl(profile: str) -> None:
    shipped = (handshakes._NOTHING_TO_SHOW, inside_identity.InsideFiles._read)
    result = run(3, STEPS, profile=profile)
    assert result.sentence == "", f"{profile}: {result.sentence}"
    assert result.faults, "something went wrong"
    assert inside_identity.mutual_context is tls_policy.mutual_context  # type: ignore[attr-defined]
    assert tls_policy.mutual_context.__module__ == tls_policy.__name__
    assert inside.describe is authority.describe  # type: ignore[attr-defined]
    assert (handshakes._NOTHING_TO_SHOW, inside_identity.InsideFiles._read) == shipped


def test_certificate_verbs_need_a_secured_cluster() -> None:
    played = play("cluster\nrotate\n----\n")
    assert "this cluster has no certificates" in played.sentence
    played = play("cluster\nuser alice\n----\n")
    assert "this cluster asks for no logins" in played.sentence
