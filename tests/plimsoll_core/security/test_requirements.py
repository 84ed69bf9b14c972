"""The table of rights that APIs will require."""

from plimsoll_core.security.requirements import REQUIREMENTS
from plimsoll_wire.api_versions import SUPPORTED


def test_every_api_that_is_served_says_which_right_it_requires() -> None:
    assert set(REQUIREMENTS) == {int(key) for key in SUPPORTED}
