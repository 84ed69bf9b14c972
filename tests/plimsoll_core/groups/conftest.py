"""What the tests of the rules of groups begin with."""

import pytest
from tests.plimsoll_core.groups.coordinator_model import CoordinatorModel, an_image


@pytest.fixture
def model() -> CoordinatorModel:
    """A shard in which there is no group yet."""
    return CoordinatorModel(an_image(orders=3, bills=1))
