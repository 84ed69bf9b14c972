"""A mounted login, as the two kinds of client take it."""

from pathlib import Path

from plimsoll_spark import login

JAVA = (
    "bootstrap.servers=b:9094\nsecurity.protocol=SASL_SSL\nsasl.jaas.config=x"
    ' username="a" password="b=";\nssl.truststore.certificates=one\\ntwo\n'
)


def test_login_of_both_clients_is_read_without_the_addresses(tmp_path: Path) -> None:
    (tmp_path / "java.properties").write_text(JAVA)
    (tmp_path / "librdkafka.conf").write_text("bootstrap.servers=b:9094\nsasl.username=a\n")
    (tmp_path / "ca.crt").write_text("one")
    assert login.librdkafka(tmp_path) == {
        "sasl.username": "a",
        "ssl.ca.location": str(tmp_path / "ca.crt"),
    }
    assert login.java(tmp_path) == {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.jaas.config": 'x username="a" password="b=";',
        "kafka.ssl.truststore.certificates": "one\ntwo",
        "kafka.ssl.cipher.suites": login.SUITES,
    }


def test_properties_are_read_as_java_reads_them(tmp_path: Path) -> None:
    (tmp_path / "java.properties").write_text(
        r"""sasl.jaas.config=p="a\\b\"=\u00e9\ud83d\ude00";"""
    )
    assert login.java(tmp_path) == {"kafka.sasl.jaas.config": r"""p="a\b"=é😀";"""}


def test_nobody_has_no_settings() -> None:
    assert (login.librdkafka(None), login.java(None)) == ({}, {})


def test_login_without_tls_names_no_suites(tmp_path: Path) -> None:
    (tmp_path / "java.properties").write_text("security.protocol=SASL_PLAINTEXT\n")
    assert login.java(tmp_path) == {"kafka.security.protocol": "SASL_PLAINTEXT"}
