"""Users whose objects are gone: since when, and how many within an hour, is committed."""

from __future__ import annotations

from tests.plimsoll_core.controller.test_security import OBJECT, Controller

from plimsoll_core.cluster.image_encoding import decode_image, encode_image
from plimsoll_core.messages import security as m
from plimsoll_core.security.state import UserObject


def test_absent_user_object_keeps_first_seen_time() -> None:
    controller = Controller()
    controller.ask(m.DeclareUser(object=OBJECT, user_name="alice"))
    controller.ask(m.UserObjectSeen(object=OBJECT, gone_since_ms=5_000))
    controller.ask(m.UserObjectSeen(object=OBJECT, gone_since_ms=9_000))
    controller.ask(m.DeclareUser(object=OBJECT, user_name="alice", disabled=True))
    row = controller.image.security.users["alice"]
    assert (row.gone_since_ms, row.disabled) == (5_000, True)
    controller.ask(m.UserObjectSeen(object=OBJECT, gone_since_ms=4_000))
    assert controller.image.security.users["alice"].gone_since_ms == 4_000, "the clock went back"
    controller.ask(m.UserObjectSeen(object=OBJECT, gone_since_ms=None))
    assert controller.image.security.users["alice"].gone_since_ms is None


def test_deleted_users_are_remembered_for_an_hour() -> None:
    controller = Controller()
    for name, now_ms in (("a", 1), ("b", None), ("c", 3_000_000), ("d", 3_600_001)):
        holder = UserObject(namespace="kafka", name=name, uid=name)
        controller.ask(m.DeclareUser(object=holder, user_name=name))
        controller.ask(m.UserObjectGone(object=holder, now_ms=now_ms))
    removals = controller.image.security.removals
    assert [one.at_ms for one in removals] == [3_000_000, 3_600_001]
    assert decode_image(encode_image(controller.image)) == controller.image
