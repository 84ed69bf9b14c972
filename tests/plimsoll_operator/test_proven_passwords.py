"""A User's password is derived once, and again when it or what is committed of it differs."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from msgspec.structs import replace
from tests.plimsoll_operator.declared_users import KEY, Users

from plimsoll_operator.kube.resources import SECRETS, USERS
from plimsoll_operator.reconcile.user import login_secret
from plimsoll_operator.reconcile.user import reconcile as user
from plimsoll_operator.reconcile.user.proven_passwords import ProvenPasswords

MECHANISMS = 2
"""A User has a credential for each SCRAM mechanism."""


@pytest.fixture
def derived(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The passwords that were derived, in order."""
    passwords: list[str] = []
    derive = login_secret.salted_password

    def counted(mechanism: Any, password: str, *how: Any) -> bytes:
        passwords.append(password)
        return derive(mechanism, password, *how)

    monkeypatch.setattr(login_secret, "salted_password", counted)
    return passwords


async def test_unchanged_password_is_derived_once(derived: list[str]) -> None:
    scene = Users()
    scene.apply()
    for _ in range(5):
        assert (await scene.reconciled()).reason == "Serving"
    assert derived == [scene.secret()["password"]] * MECHANISMS


async def test_changed_password_is_derived_again(derived: list[str]) -> None:
    scene = Users()
    scene.apply()
    await scene.reconciled()
    edited = scene.kube.find(SECRETS, KEY[0], "writer-kafka")
    for password in ("mine", "other", "mine"):
        edited["data"]["password"] = base64.b64encode(password.encode()).decode()
        scene.kube.put(SECRETS, edited)
        for _ in range(2):
            await scene.reconciled()
        assert scene.knows(password)
    passwords = ("mine", "other", "mine")
    assert derived[MECHANISMS:] == [one for one in passwords for _ in range(MECHANISMS)]


async def test_password_is_proven_for_one_credential() -> None:
    scene = Users()
    scene.apply()
    await scene.reconciled()
    password, credential = scene.secret()["password"], scene.credential()
    proven = scene.term.kept(ProvenPasswords, ProvenPasswords)
    assert proven.proven(KEY, credential, password)
    assert not proven.proven(KEY, credential, password + "x")
    assert not proven.proven(("kafka", "other"), credential, password)
    changed = replace(credential, stored_key=credential.server_key)
    assert not proven.proven(KEY, changed, password)
    scene.kube.drop(USERS, *KEY)
    scene.objects.users.drop(KEY)
    await scene.run(user.reconcile, KEY)
    assert not proven.proven(KEY, credential, password)
