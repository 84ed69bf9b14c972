"""Users' certificates: signed, committed, renewed, revoked; and whose else are believed."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from tests.plimsoll_operator.certified_scene import BEGIN_MS, LISTENERS, Certified
from tests.plimsoll_operator.declared_users import KEY

from plimsoll_core.security.client_certificates import (
    OWN_AUTHORITY,
    fingerprint,
    user_identity,
)
from plimsoll_operator.api import labels
from plimsoll_operator.kube.resources import SECRETS, USERS
from plimsoll_operator.pki.authority import (
    authority_certificates,
    describe,
    issue,
    new_authority,
    signed_by,
)
from plimsoll_operator.pki.rotation import DAY_MS, OVERLAP_MS
from plimsoll_operator.reconcile.user import reconcile as user
from plimsoll_operator.reconcile.work_queue import Retry


@pytest.fixture
async def scene() -> Certified:
    made = Certified()
    made.apply()
    ready = await made.reconciled()
    assert (ready.status, ready.reason) == ("True", "Serving")
    return made


async def test_user_gets_certificate_with_committed_fingerprint(
    scene: Certified,
) -> None:
    secret, authority = scene.secret(), scene.authority
    found = describe(secret["tls.crt"])
    uid = scene.objects.users.get(KEY).metadata.uid
    assert found.names == {user_identity(scene.term.cluster_id, "writer", uid)}
    assert found.validity.not_after_ms == BEGIN_MS + 90 * DAY_MS
    assert signed_by(secret["tls.crt"], authority["ca.crt"])
    assert [one.sha256 for one in scene.committed] == [found.sha256]
    assert scene.believed == {OWN_AUTHORITY: authority_certificates(authority["ca.crt"])}
    java = secret["java.properties"].decode()
    assert "security.protocol=SSL\nssl.keystore.type=PEM\n" in java
    assert "ssl.keystore.key=-----BEGIN PRIVATE KEY-----\\n" in java
    assert "security.protocol=SSL\n" in secret["librdkafka.conf"].decode()
    assert "sasl" not in java


async def test_nothing_is_changed_while_nothing_is_due(scene: Certified) -> None:
    before, asked = scene.shown, len(scene.decided.asked)
    scene.time_ms += 59 * DAY_MS
    await scene.reconciled()
    assert scene.shown == before
    assert len(scene.decided.asked) == asked + 1, "the User is declared again, and no authority"


async def test_certificate_is_renewed_while_previous_stays_valid(
    scene: Certified,
) -> None:
    first = scene.shown
    scene.time_ms += 61 * DAY_MS
    await scene.reconciled()
    second = scene.shown
    assert second != first
    assert [one.sha256 for one in scene.committed] == [second, first]
    scene.time_ms += 30 * DAY_MS
    await scene.reconciled()
    assert [one.sha256 for one in scene.committed] == [second]


async def test_successor_commits_the_same_certificate_after_death(
    scene: Certified, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = scene.shown
    scene.time_ms += 61 * DAY_MS
    with monkeypatch.context() as patched:

        async def dies(_: Any) -> Any:
            raise Retry("it is gone")

        await scene.look()
        patched.setattr(scene.term.controller, "request", dies)
        with pytest.raises(Retry):
            await scene.run(user.reconcile, KEY)
    second = scene.shown
    assert [one.sha256 for one in scene.committed] == [first]
    await scene.reconciled()
    assert [one.sha256 for one in scene.committed] == [second, first]


async def test_deleted_secret_revokes_what_it_held(scene: Certified) -> None:
    first = scene.shown
    scene.kube.drop(SECRETS, KEY[0], "writer-kafka")
    await scene.reconciled()
    assert [one.sha256 for one in scene.committed] == [scene.shown] != [first]


async def test_secret_with_another_users_certificate_is_not_believed(scene: Certified) -> None:
    stolen = scene.secret()["tls.crt"]
    held = scene.kube.find(SECRETS, KEY[0], "writer-kafka")
    other = issue(new_authority("mine", BEGIN_MS), ("writer",), BEGIN_MS)
    held["data"]["tls.crt"] = base64.b64encode(stolen).decode()
    held["data"]["tls.key"] = base64.b64encode(other.key).decode()
    scene.kube.put(SECRETS, held)
    await scene.reconciled()
    assert scene.secret()["tls.crt"] != stolen
    assert [one.sha256 for one in scene.committed] == [scene.shown]


async def test_authority_is_replaced_with_overlap(
    scene: Certified,
) -> None:
    """And what the former one signed last, for as long as a User may ask for, is good until its
    end."""
    scene.apply(authentication={"tls": {"validityDays": 365}})
    (first,) = scene.believed[OWN_AUTHORITY]
    scene.time_ms += 2 * 365 * DAY_MS + DAY_MS
    await scene.reconciled()
    assert scene.believed[OWN_AUTHORITY][0] == first, "it still signs"
    announced = scene.believed[OWN_AUTHORITY][1]
    before = scene.shown
    scene.time_ms += OVERLAP_MS + DAY_MS
    await scene.reconciled()
    assert scene.believed[OWN_AUTHORITY] == (announced, first)
    assert signed_by(scene.secret()["tls.crt"], scene.authority["ca.crt"])
    assert [one.sha256 for one in scene.committed] == [scene.shown, before]
    newest = scene.committed[1].not_after_ms
    scene.time_ms = newest - 1
    await scene.reconciled()
    assert before in [one.sha256 for one in scene.committed]
    assert first in scene.believed[OWN_AUTHORITY]
    scene.time_ms = newest + 365 * DAY_MS
    await scene.look()
    assert scene.believed[OWN_AUTHORITY] == (announced,)


async def test_expired_authority_is_replaced_at_once(
    scene: Certified,
) -> None:
    """Once the next one was announced for 90 days, and no user had a certificate meanwhile."""
    before = scene.shown
    scene.time_ms += 1095 * DAY_MS
    ready = await scene.reconciled()
    assert (ready.status, ready.reason) == ("True", "Serving")
    assert scene.stalled == ""
    assert signed_by(scene.secret()["tls.crt"], scene.authority["ca.crt"])
    assert [one.sha256 for one in scene.committed] == [scene.shown] != [before]
    ends = describe(scene.secret()["tls.crt"]).validity.not_after_ms
    assert ends == scene.time_ms + 90 * DAY_MS


@pytest.mark.parametrize("spoilt", ["ca.crt", "ca.key", "announced.crt", "former.crt", "since"])
async def test_damaged_authority_is_reported_with_remedy(scene: Certified, spoilt: str) -> None:
    name = labels.client_authority(scene.term.cluster_id)
    whole, believed = scene.kube.find(SECRETS, KEY[0], name), scene.believed
    junk = base64.b64encode(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    data = {"announced.key": whole["data"]["ca.key"], **whole["data"], spoilt: junk.decode()}
    scene.kube.put(SECRETS, {**whole, "data": data})
    ready = await scene.reconciled()
    assert (ready.status, ready.reason) == ("False", "ClientCaMissing")
    assert scene.stalled == ready.message
    assert f"Secret {KEY[0]}/{name} cannot be used: " in ready.message
    assert "Restore its content, or delete it" in ready.message
    assert scene.believed == believed
    assert scene.committed, "who has a certificate goes on"
    scene.kube.put(SECRETS, whole)
    ready = await scene.reconciled()
    assert (ready.status, scene.stalled) == ("True", "")


async def test_deleted_authority_is_believed_no_more(scene: Certified) -> None:
    before, shown = scene.believed[OWN_AUTHORITY], scene.shown
    name = labels.client_authority(scene.term.cluster_id)
    scene.kube.drop(SECRETS, KEY[0], name)
    await scene.reconciled()
    assert not set(before) & set(scene.believed[OWN_AUTHORITY])
    assert scene.shown != shown


async def test_user_with_other_login_loses_its_certificate(scene: Certified) -> None:
    scene.apply(authentication={"scram": {}})
    await scene.reconciled()
    assert scene.committed == ()
    assert "tls.key" not in scene.secret()


async def test_deleted_user_loses_its_certificate(scene: Certified) -> None:
    scene.apply(disabled=True)
    await scene.reconciled()
    assert scene.decided.image.security.is_disabled("writer")
    assert scene.committed, "it is let in again by the same one"
    scene.kube.drop(USERS, *KEY)
    scene.objects.users.drop(KEY)
    await scene.run(user.reconcile, KEY)
    assert scene.committed == ()


# --- other authorities ---------------------------------------------------------------------------

CORP = new_authority("corp", BEGIN_MS)
NAMED = {"clients": {"externalCas": [{"name": "corp", "configMap": {"name": "corp-ca"}}]}}


async def test_named_authority_is_read_committed_and_withdrawn() -> None:
    scene = Certified(certificates=NAMED)
    await scene.look()
    assert "corp" not in scene.believed
    assert "does not exist" in scene.stalled
    scene.give({"ca.crt": CORP.certificate.decode()})
    await scene.look()
    assert list(map(fingerprint, scene.believed["corp"])) == [describe(CORP.certificate).sha256]
    assert scene.stalled == ""
    # What cannot be read ends no session; what is named no more does.
    scene.give({"ca.crt": "nothing"})
    await scene.look()
    assert "corp" in scene.believed
    assert "the content has no readable PEM certificate" in scene.stalled
    scene.declare(listeners=LISTENERS)
    await scene.look()
    assert list(scene.believed) == [OWN_AUTHORITY]
    assert scene.stalled == ""


async def test_authority_of_another_object_is_no_predecessor() -> None:
    scene = Certified(certificates=NAMED)
    scene.give({"ca.crt": CORP.certificate.decode()})
    await scene.look()
    moved = {"clients": {"externalCas": [{"name": "corp", "secret": {"name": "corp-ca"}}]}}
    scene.declare(listeners=LISTENERS, certificates=moved)
    await scene.look()
    assert "corp" not in scene.believed


async def test_non_authority_certificate_is_not_trusted_as_one() -> None:
    scene = Certified(certificates=NAMED)
    scene.give({"ca.crt": issue(CORP, ("alice",), BEGIN_MS).certificate.decode()})
    await scene.look()
    assert "corp" not in scene.believed
    assert "is not a CA certificate" in scene.stalled


async def test_user_of_other_authority_is_named_by_subject() -> None:
    scene = Certified(certificates=NAMED)
    scene.apply(authentication={"tlsExternal": {"subject": "CN=orders,O=Shop"}})
    ready = await scene.reconciled()
    assert (ready.status, ready.reason) == ("True", "Serving")
    assert "CN=orders,O=Shop" in scene.decided.image.security.users
    assert "secrets/writer-kafka" not in scene.made("secrets")


async def test_cluster_without_certificate_logins_makes_no_authority() -> None:
    scene = Certified(listeners=[{**LISTENERS[0], "authentication": ["ScramSha512"]}])
    scene.apply()
    await scene.look()
    assert scene.believed == {}
    assert scene.made("secrets") == []
