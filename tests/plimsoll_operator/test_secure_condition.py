"""The condition `Secure` of a LogCluster: true only where everything is closed."""

import pytest
from msgspec.structs import replace
from tests.plimsoll_operator.builders import an_image

from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.security.inside import Inside, InsideMode
from plimsoll_core.security.state import Authorization, Mode
from plimsoll_operator.reconcile.cluster.access import secure_condition


@pytest.mark.parametrize(
    ("mode", "inside", "everyone", "reason"),
    [
        (Mode.ENFORCE, InsideMode.REQUIRED, False, "Closed"),
        (Mode.ENFORCE, InsideMode.REQUIRED, True, "AllowEveryone"),
        (Mode.ENFORCE, InsideMode.PERMISSIVE, False, "PlaintextInside"),
        (Mode.AUDIT, InsideMode.REQUIRED, False, "AuthorizationOff"),
        (Mode.OFF, InsideMode.REQUIRED, False, "AuthorizationOff"),
    ],
)
def test_secure_condition_requires_everything_closed(
    mode: Mode, inside: InsideMode, everyone: bool, reason: str
) -> None:
    listener = Listener(
        name="tls", port=9094, tls_version_min="1.2", authentication=("ScramSha512",)
    )
    access = Authorization(mode=mode, allow_everyone_if_no_acl=everyone)
    image = an_image()
    image = replace(
        image,
        listeners=(listener,),
        security=replace(image.security, authorization=access),
        inside=Inside(mode=inside),
    )
    shown = secure_condition(image)
    assert shown is not None
    assert shown.reason == reason
    assert (shown.status == "True") == (reason == "Closed")
    waits = secure_condition(an_image(), "Required waits: broker 1 presents no certificate yet.")
    assert waits is not None
    assert waits.status == "False"


def test_listener_without_tls_is_a_hole() -> None:
    image = an_image()
    plain = Listener(name="sasl", port=9094, authentication=("ScramSha512",))
    image = replace(
        image,
        listeners=(plain,),
        security=replace(image.security, authorization=Authorization(mode=Mode.ENFORCE)),
        inside=Inside(mode=InsideMode.REQUIRED),
    )
    shown = secure_condition(image)
    assert shown is not None
    assert (shown.status, shown.reason) == ("False", "PlaintextListener")
