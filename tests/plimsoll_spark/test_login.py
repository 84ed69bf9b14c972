"""A mounted login, as the clients of a run take it."""

from pathlib import Path

from plimsoll_spark import login


def test_login_files_omit_the_addresses(tmp_path: Path) -> None:
    (tmp_path / "librdkafka.conf").write_text("bootstrap.servers=b:9094\nsasl.username=a\n")
    (tmp_path / "ca.crt").write_text("one")
    assert login.librdkafka(tmp_path) == {
        "sasl.username": "a",
        "ssl.ca.location": str(tmp_path / "ca.crt"),
    }


def test_missing_login_has_no_settings() -> None:
    assert login.librdkafka(None) == {}
