"""Whose tokens are believed: keys are read, committed, replaced and withdrawn."""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec
import pytest
from tests.plimsoll_core.security.token_issuer import AnIssuer, raw
from tests.plimsoll_operator.builders import an_image, finalised
from tests.plimsoll_operator.terms import Deciding, Scene

from plimsoll_broker.security.token_signatures import verified
from plimsoll_core.cluster.record_versions import NEWEST
from plimsoll_core.security.tokens import Bearer, TokenIssuer, TokenProof
from plimsoll_operator.api.cluster_ids import kafka_id
from plimsoll_operator.api_server.account_tokens import ISSUER, AccountTokens
from plimsoll_operator.kube.errors import Rejected, Unavailable
from plimsoll_operator.kube.kube_api import OPENID_CONFIGURATION, OPENID_KEYS, HttpRequest
from plimsoll_operator.kube.resources import CONFIG_MAPS, SERVICE_ACCOUNTS
from plimsoll_operator.pki.token_keys import KEYS_MAX, keys_of
from plimsoll_operator.preflight.rights import RIGHTS
from plimsoll_operator.reconcile.cluster import access
from plimsoll_operator.reconcile.stall_causes import StallSource

PODS = {"name": "pods", "port": 9094, "tls": {}, "authentication": ["ServiceAccount"]}
CORP = AnIssuer("https://id.example.test", "kafka-main")
DECLARED = {
    "name": "corp",
    "issuer": CORP.issuer,
    "audience": CORP.audience,
    "keysConfigMap": {"name": "corp-keys"},
}


class Declared:
    """A LogCluster in a term whose controller decides, at an API server that signs tokens."""

    def __init__(self, version: int = NEWEST, **spec: Any) -> None:
        image = finalised(an_image((0,)), version)
        self.deciding = Deciding(image)
        self.scene = Scene(image, self.deciding, **spec)
        self.tokens = AccountTokens(self.scene.term.now_ms)
        self.scene.kube.server._tokens = self.tokens
        self.now_ms = 0
        self.scene.term.monotonic_ms = lambda: self.now_ms

    async def look(self) -> tuple[TokenIssuer, ...]:
        term = self.scene.term
        assert term.cluster is not None
        await self.scene.run_part(access.reconcile, term.cluster)
        return self.deciding.image.security.issuers

    def give(self, keys: Any, key: str = "jwks.json") -> None:
        meta = {"name": "corp-keys", "namespace": "kafka"}
        text = keys if isinstance(keys, str) else json.dumps(keys)
        self.scene.kube.put(CONFIG_MAPS, {"metadata": meta, "data": {key: text}})

    def publish(self, *keys: dict[str, Any]) -> None:
        self.tokens.documents[OPENID_KEYS] = {"keys": list(keys)}

    @property
    def stalled(self) -> str:
        cause = self.scene.term.shown.stall_causes.get(StallSource.TOKENS)
        return "" if cause is None else cause.message


async def test_cluster_without_token_listeners_trusts_no_issuer() -> None:
    made = Declared()
    assert await made.look() == ()
    assert made.deciding.asked == []
    assert made.scene.work == []


async def test_service_account_token_is_trusted_by_keys() -> None:
    made = Declared(listeners=[PODS])
    (issuer,) = await made.look()
    cluster_id = kafka_id(made.scene.term.cluster_id)
    assert issuer.audiences == ("plimsoll:kafka/main", f"plimsoll:{cluster_id}")
    account = {"metadata": {"name": "orders", "namespace": "kafka"}}
    made.scene.kube.put(SERVICE_ACCOUNTS, account)
    for audience in issuer.audiences:
        path = SERVICE_ACCOUNTS.path("kafka", "orders") + "/token"
        body = msgspec.json.encode({"spec": {"audiences": [audience], "expirationSeconds": 600}})
        answer = made.scene.kube.server.handle(HttpRequest(method="POST", path=path, body=body))
        token = msgspec.json.decode(answer.body)["status"]["token"]
        proof = verified(Bearer(token, ""), (issuer,), int(time.time() * 1000))
        assert isinstance(proof, TokenProof), proof
        assert proof.user == "system:serviceaccount:kafka:orders"


async def test_unchanged_keys_are_not_recommitted() -> None:
    made = Declared(listeners=[PODS])
    await made.look()
    before = len(made.deciding.records)
    await made.look()
    assert len(made.deciding.records) == before
    assert made.scene.work, "it is looked at again"


async def test_keys_are_added_and_withdrawn() -> None:
    made = Declared(listeners=[PODS])
    (first,) = await made.look()
    old = made.tokens.documents[OPENID_KEYS]["keys"]
    new = AnIssuer(ISSUER, key_id="zzz").key_set()["keys"]
    made.publish(*old, *new)
    assert ids(await made.look()) == sorted([first.keys[0].key_id, "zzz"])
    made.publish(*new)
    assert len(ids(await made.look())) == 2
    for _ in range(3):
        made.now_ms += access.LOOK_MS - 1
        assert len(ids(await made.look())) == (2 if made.now_ms < 2 * access.LOOK_MS else 1)
    assert ids(await made.look()) == ["zzz"]


async def test_alternating_key_sets_end_no_session() -> None:
    made = Declared(listeners=[PODS])
    await made.look()
    (one,), (two,) = (AnIssuer(ISSUER, key_id=name).key_set()["keys"] for name in "ab")
    made.publish(one, two)
    await made.look()
    before = len(made.deciding.records)
    for keys in ((one,), (one, two), (one,), (two,), (one,), (one, two)):
        made.now_ms += access.LOOK_MS
        made.publish(*keys)
        assert {"a", "b"} <= set(ids(await made.look()))
    gone = made.deciding.records[before:]
    assert len(gone) == 1, "the first key, which nobody published any more"


async def test_retained_keys_displace_no_new_key() -> None:
    made = Declared(listeners=[PODS])
    for name in "ab":
        (row,) = AnIssuer(ISSUER).key_set()["keys"]
        made.publish(*({**row, "kid": f"{name}{number:02}"} for number in range(KEYS_MAX)))
        await made.look()
    assert ids(await made.look()) == [f"b{number:02}" for number in range(KEYS_MAX)]


def ids(issuers: tuple[TokenIssuer, ...]) -> list[str]:
    """Of the only issuer's keys."""
    (issuer,) = issuers
    return [key.key_id for key in issuer.keys]


@pytest.mark.parametrize("published", [{}, {"keys": []}, {"keys": 7}, {"keys": [{"kty": "oct"}]}])
async def test_answer_without_usable_key_stalls_unchanged(published: Any) -> None:
    made = Declared(listeners=[PODS])
    before = await made.look()
    made.tokens.documents[OPENID_KEYS] = {"x": 1, **published}
    assert await made.look() == before
    assert "no usable public key" in made.stalled
    made.publish(*AnIssuer(ISSUER, key_id="n").key_set()["keys"])
    await made.look()
    assert made.stalled == ""


async def test_unreadable_keys_are_reported_and_absence_awaited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = Declared(listeners=[PODS])
    failure: Exception = Rejected(403, "GET /openid/v1/jwks answered: forbidden")

    async def refused(_: str) -> Any:
        raise failure

    monkeypatch.setattr(made.scene.kube, "document", refused)
    assert await made.look() == ()
    assert "forbidden" in made.stalled
    failure = Unavailable(0, "gone")
    with pytest.raises(Unavailable):
        await made.look()
    (right,) = [one for one in RIGHTS if one.urls]
    assert OPENID_KEYS in right.urls


async def test_declared_issuer_uses_config_map_keys() -> None:
    made = Declared(listeners=[{**PODS, "authentication": ["OAuth"]}], tokenIssuers=[DECLARED])
    assert await made.look() == ()
    assert "ConfigMap corp-keys does not exist" in made.stalled
    made.give(CORP.key_set())
    (issuer,) = await made.look()
    assert made.stalled == ""
    assert issuer == CORP.committed("OAuth", name="corp", user_prefix="corp:")
    made.give("[" * 9_000)
    assert await made.look() == (issuer,)
    assert "no valid JSON" in made.stalled


async def test_declaration_applies_independently_of_keys() -> None:
    made = Declared(tokenIssuers=[{**DECLARED, "principalPrefix": ""}])
    made.give(CORP.key_set())
    (issuer,) = await made.look()
    made.give("nothing")
    tightened = {"audience": "kafka-new", "principalPrefix": "corp:", "principalClaim": "email"}
    made.scene.declare(tokenIssuers=[{**DECLARED, **tightened}])
    (now,) = await made.look()
    assert (now.audiences, now.user_prefix, now.user_claim) == (("kafka-new",), "corp:", "email")
    assert now.keys == issuer.keys
    assert "no valid JSON" in made.stalled
    assert await made.look() == (now,)


@pytest.mark.parametrize(
    "other",
    [
        {"issuer": "https://other.example.test"},
        {"keysConfigMap": {"name": "not-there"}},
        {"keysConfigMap": {"name": "corp-keys", "key": "not-there"}},
    ],
)
async def test_keys_are_not_kept_for_another_issuer(
    other: dict[str, Any],
) -> None:
    made = Declared(tokenIssuers=[DECLARED])
    made.give(CORP.key_set())
    assert len(await made.look()) == 1
    made.give("nothing")
    assert len(await made.look()) == 1
    made.scene.declare(tokenIssuers=[{**DECLARED, **other}])
    assert await made.look() == ()
    assert made.stalled
    made.scene.declare(tokenIssuers=[DECLARED])
    assert await made.look() == ()  # they are gone


async def test_next_leader_keeps_keys_that_it_cannot_read() -> None:
    made = Declared(tokenIssuers=[DECLARED])
    made.give(CORP.key_set())
    before = await made.look()
    made.give("nothing")
    made.scene.term._kept.clear()
    assert await made.look() == before


async def test_undeclared_issuer_is_no_longer_trusted() -> None:
    made = Declared(tokenIssuers=[DECLARED])
    made.give(CORP.key_set())
    assert len(await made.look()) == 1
    made.scene.declare()
    assert await made.look() == ()


async def test_unusable_key_delays_no_withdrawal() -> None:
    listeners = [PODS, {**PODS, "name": "corp", "port": 9095, "authentication": ["OAuth"]}]
    made = Declared(listeners=listeners, tokenIssuers=[DECLARED])
    made.give(CORP.key_set())
    accounts, corp = await made.look()
    number, large = encoded((1 << 4095) + 1), encoded((1 << 4094) + 1)
    made.give({"keys": [{"kty": "RSA", "kid": "large", "n": number, "e": large}]})
    made.publish(*AnIssuer(ISSUER, key_id=accounts.keys[0].key_id).key_set()["keys"])
    rotated, kept = await made.look()
    assert rotated.keys[0].key_id == accounts.keys[0].key_id
    assert rotated.keys != accounts.keys
    assert kept == corp
    assert "no usable public key" in made.stalled


async def test_duplicate_issuer_is_left_out_alone() -> None:
    twin = {**DECLARED, "name": "corp2", "audience": "other"}
    made = Declared(listeners=[PODS], tokenIssuers=[DECLARED, twin])
    made.give(CORP.key_set())
    assert [one.name for one in await made.look()] == ["kubernetes", "corp"]
    assert "corp2 is ignored: token issuer corp has the same" in made.stalled
    made.publish(*AnIssuer(ISSUER, key_id="new").key_set()["keys"])
    assert "new" in {key.key_id for key in (await made.look())[0].keys}
    made.scene.declare(listeners=[PODS], tokenIssuers=[DECLARED])
    await made.look()
    assert made.stalled == ""


async def test_overlong_issuer_of_api_server_is_isolated() -> None:
    made = Declared(listeners=[PODS], tokenIssuers=[DECLARED])
    made.give(CORP.key_set())
    right = made.tokens.documents[OPENID_CONFIGURATION]
    made.tokens.documents[OPENID_CONFIGURATION] = {"issuer": "https://" + "i" * 600}
    assert [one.name for one in await made.look()] == ["corp"]
    assert "kubernetes is invalid" in made.stalled
    made.tokens.documents[OPENID_CONFIGURATION] = right
    both = await made.look()
    assert len(both) == 2
    made.tokens.documents[OPENID_CONFIGURATION] = {"issuer": "https://" + "i" * 600}
    assert await made.look() == both


async def test_tokens_wait_for_the_metadata_version() -> None:
    made = Declared(version=2, listeners=[PODS])
    assert await made.look() == ()
    assert made.stalled == ""
    pinned = Declared(version=2, listeners=[PODS], metadataVersion="0.1")
    assert await pinned.look() == ()
    assert pinned.stalled != ""


# --- keys ----------------------------------------------------------------------------------------


def a_row(issuer: AnIssuer, **more: Any) -> dict[str, Any]:
    (row,) = issuer.key_set()["keys"]
    return {name: value for name, value in {**row, **more}.items() if value is not None}


def encoded(number: int) -> str:
    """As a key set has it."""
    return raw(number.to_bytes((number.bit_length() + 7) // 8, "big"))


RSA = AnIssuer(rsa=True)


@pytest.mark.parametrize(
    ("row", "algorithm"),
    [
        (a_row(CORP), "ES256"),
        (a_row(CORP, alg=None, use=None), "ES256"),
        (a_row(RSA), "RS256"),
        (a_row(RSA, alg="RS512"), "RS512"),
        (a_row(RSA, alg=None), "RS256"),
        (a_row(RSA, alg="PS256"), None),
        (a_row(RSA, alg="ES256"), None),
        (a_row(RSA, alg="none"), None),
        (a_row(CORP, alg="HS256"), None),
        (a_row(CORP, use="enc"), None),
        (a_row(CORP, kid=None), None),
        (a_row(CORP, kid=7), None),
        (a_row(CORP, kid="k" * 600), None),
        (a_row(CORP, x="AA"), None),
        (a_row(RSA, n="AQAB"), None),
        (a_row(RSA, e=encoded((1 << 64) - 1)), "RS256"),
        (a_row(RSA, e=encoded((1 << 64) + 1)), None),
        ({"kty": "oct", "k": "c2VjcmV0", "kid": "s", "alg": "HS256"}, None),
        ("no object", None),
    ],
)
def test_key_verifies_by_one_algorithm(row: Any, algorithm: str | None) -> None:
    found = keys_of({"keys": [row]})
    assert [key.algorithm for key in found] == ([] if algorithm is None else [algorithm])


def test_keys_are_bounded_and_unique() -> None:
    rows = [a_row(CORP, kid=f"k{number:03}") for number in range(3 * KEYS_MAX)]
    found = keys_of({"keys": [*rows, a_row(RSA, kid="k000")]})
    assert len(found) == KEYS_MAX
    assert found[0].algorithm == "ES256"
