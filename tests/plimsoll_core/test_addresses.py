"""How addresses become texts, and come apart again."""

from __future__ import annotations

import pytest

from plimsoll_core.addresses import host_and_port, is_literal, is_loopback, split_address, to_listen


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("10.0.0.1", "10.0.0.1:9092"),
        ("a.example", "a.example:9092"),
        ("fd00::1", "[fd00::1]:9092"),
        ("[fd00::1]", "[fd00::1]:9092"),
    ],
)
def test_ipv6_address_stands_in_brackets_before_its_port(host: str, text: str) -> None:
    assert host_and_port(host, 9092) == text
    assert split_address(text) == (host.strip("[]"), 9092)


@pytest.mark.parametrize("text", ["a", "", "::1", "fd00::1:9092", "[::1]", "[::1]:", "a:x", "a:-1"])
def test_text_without_host_and_port_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"HOST:PORT|brackets"):
        split_address(text)


def test_listener_without_an_address_takes_both_families() -> None:
    assert [to_listen(host) for host in ("0.0.0.0", "::", "")] == [None, None, None]
    assert to_listen("::1") == "::1"


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("127.8.9.1", True),
        ("[::1]", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:10.0.0.1", False),
        ("10.0.0.1", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
    ],
)
def test_loopback_is_what_leads_to_this_machine_alone(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_name_is_no_literal_address() -> None:
    assert [is_literal(one) for one in ("fd00::1", "[fd00::1]", "10.0.0.1", "a")] == [
        True, True, True, False,
    ]  # fmt: skip
