"""Whose tokens are believed is committed in one record, or refused."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.plimsoll_core.controller.test_security import Controller
from tests.plimsoll_core.security.token_issuer import AnIssuer

from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.controller.security.trusted_issuers import ISSUERS_MAX, KEYS_MAX
from plimsoll_core.errors import Reason
from plimsoll_core.messages.brokers import DeclareListeners
from plimsoll_core.messages.requests import Done, Refused
from plimsoll_core.messages.security import CreateAcls, DeclareTokenIssuers, DeclareUser, OnBehalf
from plimsoll_core.security.state import UserObject
from plimsoll_core.security.tokens import token_mark

ISSUER = AnIssuer().committed()
(KEY,) = ISSUER.keys
OBJECT = UserObject(namespace="shop", name="orders", uid="u-1")


def test_issuers_are_committed_replaced_and_withdrawn() -> None:
    controller = Controller()
    second = replace(ISSUER, keys=(replace(KEY, key_id="key-2"),))
    for issuers in ((ISSUER,), (ISSUER,), (second,), ()):
        assert controller.ask(DeclareTokenIssuers(issuers=issuers)) == Done()
        assert controller.image.security.issuers == issuers


@pytest.mark.parametrize(
    "issuers",
    [
        (ISSUER, ISSUER),
        (ISSUER, replace(ISSUER, name="second")),
        tuple(replace(ISSUER, name=f"n{i}", issuer=f"i{i}") for i in range(ISSUERS_MAX + 1)),
        (replace(ISSUER, issuer=""),),
        (replace(ISSUER, audiences=()),),
        (replace(ISSUER, audiences=("a" * 600,)),),
        (replace(ISSUER, user_prefix="a" * 600),),
        (replace(ISSUER, keys=(KEY, KEY)),),
        (replace(ISSUER, keys=tuple(replace(KEY, key_id=f"k{i}") for i in range(KEYS_MAX + 1))),),
        (replace(ISSUER, keys=(replace(KEY, algorithm="HS256"),)),),  # type: ignore[arg-type]
        (replace(ISSUER, keys=(replace(KEY, public_key=b"k" * 2_000),)),),
    ],
)
def test_untrustworthy_issuers_are_refused_and_change_nothing(issuers: Any) -> None:
    controller = Controller()
    controller.ask(DeclareTokenIssuers(issuers=(ISSUER,)))
    answer = controller.ask(DeclareTokenIssuers(issuers=issuers))
    assert isinstance(answer, Refused)
    assert controller.image.security.issuers == (ISSUER,)


def asked_by(login: bytes) -> CreateAcls:
    account = "User:system:serviceaccount:shop:orders"
    return CreateAcls(acls=(), behalf=OnBehalf(principal=account, host="h", login=login))


@pytest.mark.parametrize(
    "now",
    [
        (),
        (replace(ISSUER, keys=()),),
        (replace(ISSUER, keys=(replace(KEY, key_id="key-2"),)),),
        (replace(ISSUER, keys=AnIssuer().committed().keys),),
        (replace(ISSUER, issuer="https://other"),),
        (replace(ISSUER, audiences=("other",)),),
        (replace(ISSUER, login="OAuth", user_prefix="corp:"),),
        (replace(ISSUER, name="other"),),
    ],
)
def test_forwarded_change_with_distrusted_token_is_refused(
    now: Any,
) -> None:
    controller = Controller()
    controller.enforce("User:system:serviceaccount:shop:orders")
    controller.ask(DeclareTokenIssuers(issuers=(ISSUER,)))
    asked = asked_by(token_mark(ISSUER, KEY))
    assert not isinstance(controller.ask(asked), Refused)
    another = replace(ISSUER, keys=(replace(KEY, key_id="key-2"), KEY))
    controller.ask(DeclareTokenIssuers(issuers=(another,)))
    assert not isinstance(controller.ask(asked), Refused)
    controller.ask(DeclareTokenIssuers(issuers=now))
    answer = controller.ask(asked)
    assert isinstance(answer, Refused)
    assert "no longer valid" in answer.message
    assert isinstance(controller.ask(asked_by(b"")), Refused)


def test_metadata_version_before_tokens_writes_no_issuer() -> None:
    answer = Controller(version=2).ask(DeclareTokenIssuers(issuers=(ISSUER,)))
    assert isinstance(answer, Refused)
    assert answer.known_reason is Reason.MetadataTooOld


def test_listener_with_tokens_needs_tls() -> None:
    controller = Controller()
    for login in ("ServiceAccount", "OAuth"):
        plain = Listener(name="pods", port=9094, authentication=(login,))
        answer = controller.ask(DeclareListeners(listeners=(plain,)))
        assert isinstance(answer, Refused)
        with_tls = replace(plain, tls_version_min="1.2")
        assert controller.ask(DeclareListeners(listeners=(with_tls,))) == Done()


@pytest.mark.parametrize(
    ("name", "legal"),
    [
        ("system:serviceaccount:shop:orders", True),
        ("system:serviceaccount:other:orders", False),
        ("system:serviceaccount:shop:", False),
        ("system:serviceaccount:shop:a:b", False),
        ("system:serviceaccount:shop:" + "a" * 240, False),
        ("system:admin", False),
    ],
)
def test_user_object_is_service_account_of_its_namespace(name: str, legal: bool) -> None:
    answer = Controller().ask(DeclareUser(object=OBJECT, user_name=name))
    assert isinstance(answer, Done if legal else Refused)
