"""What the controller decides about rules, passwords and users, and for whom it decides again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.plimsoll_core.conftest import CLUSTER
from tests.plimsoll_core.security.acl_model import ACLS
from tests.plimsoll_core.security.scram_client import a_credential

from plimsoll_core.cluster.image import apply
from plimsoll_core.cluster.image_encoding import decode_image, encode_image
from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.cluster.records import (
    AclsAdded,
    AclsRemoved,
    MetadataVersionFinalized,
    ScramCredentialSet,
)
from plimsoll_core.controller.decide import Settings, VolatileState, decide
from plimsoll_core.controller.security.acl_changes import CHANGES_MAX
from plimsoll_core.controller.security.security_share import ACLS_MAX
from plimsoll_core.errors import Code, Reason
from plimsoll_core.messages import security as m
from plimsoll_core.messages.requests import Done, Refused
from plimsoll_core.security.acl import Acl, AclFilter, AclOperation, ResourceType
from plimsoll_core.security.acl_index import index_of
from plimsoll_core.security.scram import ScramCredential, login_mark
from plimsoll_core.security.state import Authorization, Mode, UserObject
from plimsoll_core.security.tokens import TokenIssuer

OBJECT = UserObject(namespace="kafka", name="alice", uid="u-1")


class Controller:
    """Every decision is committed at once; a copy as a snapshot is always equal."""

    def __init__(self, version: int = 3) -> None:
        self.image = ClusterImage(cluster_id=CLUSTER)
        finalized = MetadataVersionFinalized(cause="t", metadata_version=version)
        self.image = apply(self.image, finalized)
        self.soft = VolatileState()

    def ask(self, request: Any) -> Any:
        decision = decide(self.image, self.soft, request, 1_000, Settings())
        replayed = self.image
        for record in decision.records:
            replayed = apply(replayed, record)
        self.image = decision.image
        assert replayed == self.image
        assert decode_image(encode_image(self.image)) == self.image
        return decision.answer

    def set_password(self, credential: ScramCredential) -> None:
        """By whoever may."""
        self.image = apply(self.image, ScramCredentialSet(cause="t", credential=credential))

    def logged_in(self, user: str = "alice") -> m.OnBehalf:
        """Who has just logged in by a password."""
        one = a_credential(user)
        self.set_password(one)
        return m.OnBehalf(
            principal=f"User:{user}", host="10.0.0.1", login=login_mark(one.stored_key)
        )

    def enforce(self, *super_users: str) -> None:
        authorization = Authorization(mode=Mode.ENFORCE, super_users=super_users, disguise=b"d")
        assert self.ask(m.DeclareAuthorization(authorization=authorization)) == Done()


def a_rule(name: str = "orders", **more: Any) -> Acl:
    plain = {"resource": ResourceType.TOPIC, "principal": "User:alice"}
    return Acl(**{**plain, "name": name, "operation": AclOperation.READ, **more})


def alter_cluster(principal: str = "User:alice") -> Acl:
    cluster = {"resource": ResourceType.CLUSTER, "name": "kafka-cluster"}
    return a_rule(**cluster, operation=AclOperation.ALTER, principal=principal)


@settings(max_examples=100, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["", "u-1", "u-2"]), st.booleans(), st.sets(ACLS, max_size=4)),
        max_size=8,
    )
)
def test_index_holds_rules_that_an_owner_wants(steps: Any) -> None:
    image = ClusterImage(cluster_id=CLUSTER)
    wanted: dict[str, set[Acl]] = {"": set(), "u-1": set(), "u-2": set()}
    for owner, adds, acls in steps:
        mine = wanted[owner]
        if adds and (new := acls - mine):
            image = apply(image, AclsAdded(cause="t", acls=tuple(new), owner=owner))
            mine |= new
        elif not adds and (gone := acls & mine):
            image = apply(image, AclsRemoved(cause="t", acls=tuple(gone), owner=owner))
            mine -= gone
    assert image.security.index == index_of(set().union(*wanted.values()))
    assert decode_image(encode_image(image)) == image


def test_duplicate_rule_creation_is_accepted() -> None:
    controller = Controller()
    for _ in range(2):
        answer = controller.ask(m.CreateAcls(acls=(a_rule(), a_rule())))
        assert isinstance(answer, m.AclsChanged)
    assert list(controller.image.security.acls) == [a_rule()]


def test_rules_of_one_request_are_created_together() -> None:
    controller = Controller()
    answer = controller.ask(m.CreateAcls(acls=(a_rule(), a_rule(name=""))))
    assert isinstance(answer, Refused)
    assert answer.code == Code.INVALID_REQUEST
    assert not controller.image.security.acls


def test_rules_are_bounded_per_request_and_in_total() -> None:
    controller = Controller()
    many = tuple(a_rule(f"t-{number}") for number in range(CHANGES_MAX + 1))
    assert isinstance(controller.ask(m.CreateAcls(acls=many)), Refused)
    rules = Controller()
    rules.image = apply(
        rules.image,
        AclsAdded(cause="t", acls=tuple(a_rule(f"t-{number}") for number in range(ACLS_MAX))),
    )
    answer = decide(
        rules.image, VolatileState(), m.CreateAcls(acls=(a_rule("one-more"),)), 1, Settings()
    ).answer
    assert isinstance(answer, Refused)


def test_deletion_keeps_rules_of_declaring_object() -> None:
    controller = Controller()
    both = (a_rule("own"), a_rule("only"))
    controller.ask(m.DeclareUser(object=OBJECT, user_name="alice", acls=both))
    controller.ask(m.CreateAcls(acls=(a_rule("own"), a_rule("other"))))
    answer = controller.ask(m.DeleteAcls(filters=(AclFilter(), AclFilter(name="nothing"))))
    (found, nothing) = answer.deleted
    assert nothing == ()
    told = {one.acl.name: (one.code, one.message) for one in found}
    assert told["other"] == (0, "")
    assert told["own"][0] == Code.POLICY_VIOLATION
    assert "User kafka/alice" in told["own"][1]
    assert told["only"][0] == Code.POLICY_VIOLATION
    left = dict(controller.image.security.acls.items())
    assert left == {a_rule("own"): ("u-1",), a_rule("only"): ("u-1",)}


@pytest.mark.parametrize(
    "request_",
    [
        m.CreateAcls(acls=(a_rule(),)),
        m.DeleteAcls(filters=(AclFilter(),)),
        m.AlterScramCredentials(upsertions=(a_credential(),)),
        m.DeclareUser(object=OBJECT, user_name="alice"),
        m.DeclareAuthorization(authorization=Authorization(mode=Mode.AUDIT, disguise=b"d")),
    ],
    ids=lambda one: type(one).__name__,
)
def test_rules_wait_for_their_metadata_version(request_: Any) -> None:
    controller = Controller(version=2)
    answer = controller.ask(request_)
    assert isinstance(answer, Refused)
    assert answer.known_reason is Reason.MetadataTooOld
    assert controller.image.security == ClusterImage(cluster_id=CLUSTER).security


def test_disguise_secret_is_committed_for_login_listeners() -> None:
    controller = Controller()
    off = m.DeclareAuthorization(authorization=Authorization(disguise=b"d"))
    assert controller.ask(off) == Done()
    assert controller.image.security.authorization == Authorization()
    asking = Listener(name="own", port=9094, authentication=("ScramSha512",))
    controller.image = replace(controller.image, listeners=(asking,))
    assert controller.ask(off) == Done()
    assert controller.image.security.authorization.disguise == b"d"


# --- passwords -----------------------------------------------------------------------------------


def codes(answer: Any) -> dict[str, int]:
    assert isinstance(answer, m.ScramAltered), answer
    return {one.user: one.code for one in answer.users}


def test_passwords_are_changed_each_user_for_itself() -> None:
    controller = Controller()
    unknown = m.ScramDeletion(user="carol", mechanism="SCRAM-SHA-256")
    bad = replace(a_credential("dave"), iterations=100)
    answer = controller.ask(
        m.AlterScramCredentials(
            deletions=(unknown,),
            upsertions=(
                a_credential(),
                a_credential("bob"),
                a_credential("bob"),
                bad,
                replace(a_credential(), user="a,b"),
            ),
        )
    )
    assert codes(answer) == {
        "carol": Code.RESOURCE_NOT_FOUND,
        "alice": 0,
        "bob": Code.DUPLICATE_RESOURCE,
        "dave": Code.UNACCEPTABLE_CREDENTIAL,
        "a,b": Code.UNACCEPTABLE_CREDENTIAL,
    }
    assert list(controller.image.security.credentials) == [("alice", "SCRAM-SHA-512")]
    gone = m.ScramDeletion(user="alice", mechanism="SCRAM-SHA-512")
    assert codes(controller.ask(m.AlterScramCredentials(deletions=(gone,)))) == {"alice": 0}
    assert not controller.image.security.credentials


def test_password_of_declared_user_is_changed_by_object() -> None:
    controller = Controller()
    controller.ask(m.DeclareUser(object=OBJECT, user_name="alice", credentials=(a_credential(),)))
    answer = controller.ask(m.AlterScramCredentials(upsertions=(a_credential(password="x"),)))
    assert codes(answer) == {"alice": Code.POLICY_VIOLATION}
    assert "User kafka/alice" in answer.users[0].message


def test_declared_user_without_login_gets_client_password() -> None:
    """Until the object states one: then it is the object's, and what the tools made goes."""
    controller = Controller()
    controller.ask(m.DeclareUser(object=OBJECT, user_name="alice", acls=(a_rule("a"),)))
    by_tool = a_credential(password="x")
    answer = controller.ask(m.AlterScramCredentials(upsertions=(by_tool,)))
    assert codes(answer) == {"alice": 0}
    controller.ask(m.DeclareUser(object=OBJECT, user_name="alice", acls=(a_rule("b"),)))
    assert list(controller.image.security.credentials.values()) == [by_tool]
    declared = a_credential(password="y")
    controller.ask(m.DeclareUser(object=OBJECT, user_name="alice", credentials=(declared,)))
    (held,) = controller.image.security.credentials.values()
    assert (held.stored_key, held.owner) == (declared.stored_key, OBJECT.uid)
    gone = m.ScramDeletion(user="alice", mechanism=by_tool.mechanism)
    answer = controller.ask(m.AlterScramCredentials(deletions=(gone,)))
    assert codes(answer) == {"alice": Code.POLICY_VIOLATION}


# --- users ---------------------------------------------------------------------------------------


def test_user_belongs_to_first_declaring_object() -> None:
    controller = Controller()
    second = UserObject(namespace="kafka", name="second", uid="u-2")
    controller.ask(m.DeclareUser(object=OBJECT, user_name="alice"))
    refused = controller.ask(m.DeclareUser(object=second, user_name="alice"))
    assert refused.known_reason is Reason.UserNameTaken
    controller.ask(m.UserObjectGone(object=OBJECT))
    assert controller.ask(m.DeclareUser(object=second, user_name="alice")) == Done()


def test_deleted_user_object_keeps_client_settings() -> None:
    controller = Controller()
    controller.ask(
        m.DeclareUser(
            object=OBJECT,
            user_name="alice",
            acls=(a_rule("a"), a_rule("b")),
            credentials=(a_credential(),),
        )
    )
    controller.ask(m.CreateAcls(acls=(a_rule("b"),)))
    controller.ask(m.UserObjectGone(object=OBJECT))
    security = controller.image.security
    assert not security.credentials
    assert list(security.acls.items()) == [(a_rule("b"), ("",))]
    assert controller.ask(m.UserObjectGone(object=OBJECT)) == Done()


def test_disabled_certificate_subject_stays_disabled_after_deletion() -> None:
    """Without a row it would be one that nobody says anything of, and those log in."""
    controller = Controller()
    subject = "CN=orders,O=Shop"
    controller.ask(m.DeclareUser(object=OBJECT, user_name=subject, disabled=True))
    controller.ask(m.UserObjectGone(object=OBJECT))
    assert controller.image.security.is_disabled(subject)
    again = UserObject(namespace=OBJECT.namespace, name=OBJECT.name, uid="u-2")
    assert controller.ask(m.DeclareUser(object=again, user_name=subject)) == Done()
    assert not controller.image.security.is_disabled(subject)


def test_disabled_token_user_stays_disabled_after_deletion() -> None:
    """An OAuth issuer names users that nobody declares. A password of that name is another login,
    which goes with the object."""
    controller = Controller()
    holder = {"object": OBJECT, "user_name": "corp:alice", "disabled": True}
    corp = TokenIssuer(
        name="corp",
        login="OAuth",
        issuer="https://id.example.com",
        audiences=("kafka-main",),
        user_prefix="corp:",
    )
    for issuers, stays in (((), False), ((corp,), True)):
        controller.ask(m.DeclareTokenIssuers(issuers=issuers))
        assert controller.ask(m.DeclareUser(**holder)) == Done()
        controller.ask(m.UserObjectGone(object=OBJECT))
        assert controller.image.security.is_disabled("corp:alice") == stays
    again = UserObject(namespace=OBJECT.namespace, name=OBJECT.name, uid="u-2")
    assert controller.ask(m.DeclareUser(object=again, user_name="corp:alice")) == Done()
    assert not controller.image.security.is_disabled("corp:alice")


@pytest.mark.parametrize("name", ["", "a,b", "a=b", "system:x", "ANONYMOUS", "x" * 129])
def test_user_with_unusable_name_is_refused(name: str) -> None:
    answer = Controller().ask(m.DeclareUser(object=OBJECT, user_name=name))
    assert isinstance(answer, Refused)


def test_refused_user_leaves_nothing_behind() -> None:
    controller = Controller()
    answer = controller.ask(m.DeclareUser(object=OBJECT, user_name="alice", acls=(a_rule(""),)))
    assert isinstance(answer, Refused)
    assert not controller.image.security.users
