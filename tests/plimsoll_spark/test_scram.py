"""The login of a connection for fetches by SCRAM."""

import pytest

from plimsoll_spark.broker_connection import LoginRefused, Scram


def challenge(scram: Scram, rounds: int) -> bytes:
    """What a broker answers first to this login."""
    nonce = scram.first.partition(b",r=")[2]
    return b"r=%s0,s=AAAA,i=%d" % (nonce, rounds)


@pytest.mark.parametrize("rounds", [0, 1, 4_095, 1_000_001, 2**40])
def test_iterations_out_of_bounds_are_refused(rounds: int) -> None:
    scram = Scram("sha256", "u", "p")
    with pytest.raises(LoginRefused, match=f"asks for {rounds} iterations"):
        scram.proof(challenge(scram, rounds))


def test_fewest_iterations_are_accepted() -> None:
    scram = Scram("sha256", "u", "p")
    assert b",p=" in scram.proof(challenge(scram, 4_096))
