"""Backups in a bucket, against a real S3 server; the signature against Amazon's own example."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.plimsoll_operator.backup.followed_log import FollowedLog, writer_of, written
from tests.plimsoll_operator.test_group_commit import CLUSTER
from tests.plimsoll_spark.s3_server import BUCKET, KEY, SECRET, S3Server

from plimsoll_operator.api.evidence import S3
from plimsoll_operator.backup.backup_objects import NEWEST
from plimsoll_operator.backup.backup_reading import read_point
from plimsoll_operator.backup.backup_stores import StoredName, StoreUnavailable
from plimsoll_operator.backup.s3_store import Login, S3Store, SignedRequest, bucket, entries

# The first test builds the server.
pytestmark = pytest.mark.timeout(900)
LOGIN = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_signature_is_that_of_amazons_example() -> None:
    """Source: Amazon S3 API Reference, "Example: GET Bucket Lifecycle"."""
    nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    request = SignedRequest(
        method="GET",
        path="/",
        query="lifecycle=",
        headers={
            "host": "examplebucket.s3.amazonaws.com",
            "x-amz-content-sha256": nothing,
            "x-amz-date": "20130524T000000Z",
        },
    )
    login = Login(
        access_key="AKIAIOSFODNN7EXAMPLE", secret_key="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
    )
    wanted = "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
    assert request.authorization(login, "us-east-1").endswith(f"Signature={wanted}")


@pytest.mark.parametrize(
    ("secret", "prefix", "why"),
    [
        ({}, "", "no key AWS_ACCESS_KEY_ID"),
        ({"AWS_ACCESS_KEY_ID": "a"}, "", "no key AWS_SECRET_ACCESS_KEY"),
        (LOGIN | {"ca.crt": "none"}, "", "no readable certificate"),
        (LOGIN | {"AWS_ACCESS_KEY_ID": "a\nb"}, "", "ACCESS_KEY_ID has a space"),
        (LOGIN | {"AWS_SESSION_TOKEN": "a\r\nhost: b"}, "", "SESSION_TOKEN has a space"),
        (LOGIN, "a/../b", "a part that is empty"),
        (LOGIN, "a//b", "a part that is empty"),
    ],
)
def test_unusable_login_or_prefix_is_refused(secret: dict[str, str], prefix: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        bucket(now_ms, S3(bucket="abc", prefix=prefix, secret="login"), "c", secret)


ENTRY = b"<Contents><Key>a&amp;%d</Key><Size>3</Size></Contents>"


def test_page_of_a_list_is_read() -> None:
    page = b"<Result>" + b"".join(ENTRY % number for number in range(1_000)) + b"</Result>"
    found = entries(page)
    assert found[:2] == [("a&0", 3), ("a&1", 3)]
    assert len(found) == 1_000


@pytest.mark.parametrize(
    ("page", "why"),
    [
        (b"<Contents>" * 800_000, "more than 1000"),
        (ENTRY % 1 + b"<Contents><Key>" + b"b" * 8_000_000, "no end"),
        (b"".join(ENTRY % number for number in range(1_001)), "more than 1000"),
    ],
)
def test_page_beyond_the_api_is_refused(page: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        entries(page)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3") / "buckets") as running:
        yield running


def store_at(server: S3Server, directory: str, secret: str = SECRET) -> S3Store:
    wanted = S3(bucket=BUCKET, prefix="backups/main", endpoint=server.endpoint, secret="login")
    return bucket(now_ms, wanted, directory, LOGIN | {"AWS_SECRET_ACCESS_KEY": secret})


@pytest.mark.slow
async def test_objects_are_listed_read_and_deleted(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = store_at(server, "one"), store_at(server, "one-2")
    try:
        assert await store.stored() == []
        await other.write("a", b"of another")
        for name in ("b", "a", "c"):
            await store.write(name, name.encode() * 3)
        assert await store.stored() == [StoredName(name, 3) for name in "abc"]
        assert await store.read("b", 100) == b"bbb"
        assert await store.read("b", 2) == b"bb"
        await store.write("b", b"")
        await store.delete("c")
        await store.delete("c")
        assert await store.stored() == [StoredName("a", 3), StoredName("b", 0)]
        with pytest.raises(StoreUnavailable, match=r"404 \(NoSuchKey\)"):
            await store.read("c", 100)
    finally:
        await store.close()
        await other.close()


@pytest.mark.slow
async def test_wrong_login_is_told_without_it(server: S3Server) -> None:
    store = store_at(server, "one", secret="not-the-secret")
    try:
        with pytest.raises(StoreUnavailable, match=r"403 \(SignatureDoesNotMatch\)") as caught:
            await store.write("a", b"1")
        assert "not-the-secret" not in str(caught.value)
    finally:
        await store.close()


@pytest.mark.slow
async def test_stopped_server_is_unavailable_until_it_runs(server: S3Server) -> None:
    store = store_at(server, "two")
    try:
        server.stop()
        with pytest.raises(StoreUnavailable, match="s3://"):
            await store.write("a", b"1")
        server.start()
        await store.write("a", b"1")
        assert await store.stored() == [StoredName("a", 1)]
    finally:
        await store.close()


@pytest.mark.slow
async def test_backup_in_a_bucket_is_read_back(server: S3Server) -> None:
    log = FollowedLog()
    store = store_at(server, str(CLUSTER))
    try:
        await written(writer_of(log, store, now_ms), log)
        log.change(3)
        await written(writer_of(log, store, now_ms), log)
        assert (await read_point(store, CLUSTER, NEWEST)).copy.image == log.image
        assert (Path(server.files) / "backups" / "main" / str(CLUSTER)).is_dir()
    finally:
        await store.close()
