"""The table of rights that APIs will require."""

from plimsoll_core.security.requirements import REQUIREMENTS
from plimsoll_wire.api_versions import SUPPORTED


def test_every_served_api_states_its_required_right() -> None:
    assert set(REQUIREMENTS) == {int(key) for key in SUPPORTED}
