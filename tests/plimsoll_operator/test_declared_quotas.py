"""Quotas that User objects and LogClusters declare, on their way to the metadata log."""

from __future__ import annotations

from tests.plimsoll_operator.builders import a_cluster, an_image, replay
from tests.plimsoll_operator.test_user_handler import Users

from plimsoll_core.quotas.state import QuotaEntity
from plimsoll_operator.reconcile.cluster import access
from plimsoll_operator.reconcile.stall_causes import StallSource


async def test_user_quotas_follow_the_spec() -> None:
    users = Users()
    users.apply(
        quotas={
            "producerBytesPerSecond": "10Mi",
            "consumerBytesPerSecond": "20Mi",
            "requestPercentage": 50,
            "mutationsPerSecond": "500m",
        }
    )
    assert (await users.reconciled()).reason == "Serving"
    (row,) = users.decided.image.quotas.rows.values()
    assert row.entity == QuotaEntity(user="writer")
    assert dict(row.values.items()) == {
        "producer_byte_rate": 10 * 2**20,
        "consumer_byte_rate": 20 * 2**20,
        "request_percentage": 50,
        "controller_mutation_rate": 0.5,
    }
    users.apply()
    await users.reconciled()
    assert not users.decided.image.quotas.rows


async def test_logcluster_that_declares_defaults_has_them_committed() -> None:
    users = Users()
    declared = a_cluster(
        quotas={
            "defaultUser": {"producerBytesPerSecond": 2**20},
            "defaultClientId": {},
            "defaultIp": {"connectionsPerSecond": 20},
        }
    )
    await users.run_part(access.declare_quotas, declared)
    found = {
        str(row.entity): dict(row.values.items())
        for row in users.decided.image.quotas.rows.values()
    }
    assert found == {
        "ip <default>": {"connection_creation_rate": 20.0},
        "user <default>": {"producer_byte_rate": 2.0**20},
    }
    await users.run_part(access.declare_quotas, a_cluster())
    assert not users.decided.image.quotas.rows


async def test_quotas_of_newer_metadata_version_stall_cluster() -> None:
    users = Users()
    users.decided.image = replay(an_image())
    limited = a_cluster(quotas={"defaultUser": {"requestPercentage": 10}})
    await users.run_part(access.declare_quotas, limited)
    assert users.term.shown.stall_causes[StallSource.QUOTAS].reason == "MetadataTooOld"
    await users.run_part(access.declare_quotas, a_cluster())
    assert StallSource.QUOTAS not in users.term.shown.stall_causes
