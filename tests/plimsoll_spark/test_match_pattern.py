"""The topics that the pattern of an audit matches."""

import pyarrow as pa
import pytest

from plimsoll_spark.audit_settings import matched

NAMES = ("orders", "orders-eu", "my.orders", "a" * 249)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("orders", ["orders"]),
        ("orders.*", ["orders", "orders-eu"]),
        ("orders|my[.]orders", ["my.orders", "orders"]),
        ("([a-z]+)+[0-9]", []),
        ("(.*)*(.*)*(.*)*x", []),
    ],
)
def test_pattern_matches_whole_names_in_bounded_time(pattern: str, found: list[str]) -> None:
    assert matched(pattern, NAMES) == found


@pytest.mark.parametrize("pattern", ["(", "a)|(b", "(?!x).*", r"(a)\1"])
def test_pattern_that_is_not_re2_is_refused(pattern: str) -> None:
    with pytest.raises(pa.ArrowInvalid):
        matched(pattern, NAMES)
