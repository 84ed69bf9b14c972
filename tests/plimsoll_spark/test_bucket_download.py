"""Downloads from a server that lists what it likes: nothing is written outside of the directory."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from plimsoll_spark import bucket as s3
from plimsoll_spark.bucket import Bucket, Unsafe
from plimsoll_spark.settings import S3

CONTENT = b"EVIL!"
Listing = Callable[..., Bucket]


def listed(keys: tuple[str, ...]) -> bytes:
    rows = "".join(
        f"<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
        f"<Size>{len(CONTENT)}</Size></Contents>"
        for key in keys
    )
    head = '<?xml version="1.0"?><ListBucketResult><Name>proofs</Name><IsTruncated>false'
    return f"{head}</IsTruncated>{rows}</ListBucketResult>".encode()


@pytest.fixture
def listing(tmp_path: Path) -> Iterator[Listing]:
    """A bucket whose server lists these keys, each with the same content."""
    login = tmp_path / "login"
    login.mkdir()
    (login / "AWS_ACCESS_KEY_ID").write_text("k")
    (login / "AWS_SECRET_ACCESS_KEY").write_text("s")
    keys: tuple[str, ...] = ()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None: ...

        def do_GET(self) -> None:
            body = listed(keys) if "list-type" in self.path else CONTENT
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()

    def of(*stated: str) -> Bucket:
        nonlocal keys
        keys = stated
        return Bucket(S3(bucket="proofs", endpoint=f"http://127.0.0.1:{server.server_port}"), login)

    yield of
    server.shutdown()
    thread.join()
    server.server_close()


def written(directory: Path) -> list[str]:
    files = (one for one in directory.rglob("*") if one.is_file() and one.parent.name != "login")
    return [str(one.relative_to(directory)) for one in files]


@pytest.mark.parametrize(
    "key",
    ["run-1/../../escaped/keys", "run-1//etc/keys", "run-1/./keys", "run-1/a/..", "other/keys"],
)
def test_key_outside_of_the_run_is_refused(key: str, listing: Listing, tmp_path: Path) -> None:
    bucket = listing("run-1/run.json", key)
    with pytest.raises(Unsafe, match="lies outside their directory"):
        bucket.download("run-1", tmp_path / "work" / "x")
    assert written(tmp_path) == []


def test_link_out_of_the_directory_is_refused(listing: Listing, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    directory = tmp_path / "work"
    directory.mkdir()
    (directory / "ledger").symlink_to(tmp_path / "outside")
    with pytest.raises(Unsafe):
        listing("run-1/ledger/one").download("run-1", directory)
    (directory / "run.json").symlink_to(tmp_path / "outside" / "file")
    with pytest.raises(OSError, match="symbolic links"):
        listing("run-1/run.json").download("run-1", directory)
    assert written(tmp_path) == []


@pytest.mark.parametrize(("bound", "value"), [("FILES_MAX", 1), ("DOWNLOAD_BYTES_MAX", 9)])
def test_files_and_bytes_of_download_are_bounded(
    bound: str, value: int, listing: Listing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = listing("run-1/run.json", "run-1/ledger/one")
    assert bucket.download("run-1", tmp_path / "whole")
    assert sorted(written(tmp_path / "whole")) == ["ledger/one", "run.json"]
    monkeypatch.setattr(s3, bound, value)
    with pytest.raises(Unsafe, match="than a driver pod can read"):
        bucket.download("run-1", tmp_path / "more")
