"""Everything here runs whole clusters on virtual time: a tier of its own."""

from pathlib import Path

import pytest

HERE = f"{Path(__file__).parent}/"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if str(item.path).startswith(HERE):
            item.add_marker(pytest.mark.simulation)
