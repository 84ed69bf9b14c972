"""The evidence of a run in a bucket of a real S3 server."""

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.local_cluster import wait_for
from tests.plimsoll_spark.s3_server import BUCKET, KEY, SECRET, S3Server

from plimsoll_spark import bucket as s3
from plimsoll_spark.bucket import Bucket, Unreachable
from plimsoll_spark.settings import S3
from plimsoll_spark.uploads import Uploads

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

RUN = "check-1"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[S3Server]:
    with S3Server(tmp_path / "buckets") as running:
        yield running


def a_bucket(server: S3Server, login: Path) -> Bucket:
    return Bucket(S3(bucket=BUCKET, prefix="nightly/", endpoint=server.endpoint), login)


def a_run(directory: Path) -> Path:
    (directory / "ledger").mkdir(parents=True)
    (directory / "run.json").write_text("{}")
    return directory


def test_new_files_are_copied_during_a_run(server: S3Server, tmp_path: Path) -> None:
    bucket = a_bucket(server, server.login(tmp_path / "login"))
    run = a_run(tmp_path / "run")
    kept = server.files / "nightly" / RUN
    uploads = Uploads(bucket, run, RUN)
    uploads.begin("run.json")
    assert (kept / "run.json").read_text() == "{}"
    content = bytes(range(256)) * 100_000  # more than one part
    (run / "ledger/_partial.parquet").write_bytes(b"x")
    (run / "ledger/whole.parquet").write_bytes(content)
    wait_for("the ledger", (kept / "ledger/whole.parquet").exists, 60, 0.1)
    assert uploads.finish(60) is None
    assert [path.name for path in (kept / "ledger").iterdir()] == ["whole.parquet"]
    assert bucket.download(RUN, tmp_path / "back")
    assert (tmp_path / "back/ledger/whole.parquet").read_bytes() == content
    bucket.delete(RUN)
    assert not bucket.download(RUN, tmp_path / "nothing")


def test_bucket_follows_a_ledger_that_is_shortened(server: S3Server, tmp_path: Path) -> None:
    bucket = a_bucket(server, server.login(tmp_path / "login"))
    run = a_run(tmp_path / "run")
    (run / "checkpoint-0").mkdir()
    for name in ("ledger/a.parquet", "ledger/b.parquet", "checkpoint-0/metadata", "judge.state"):
        (run / name).write_text("1")
    uploads = Uploads(bucket, run, RUN, {"run.json", "judge.state", "ledger"})
    uploads.begin("run.json")
    kept = server.files / "nightly" / RUN
    wait_for("the ledger", (kept / "ledger/b.parquet").exists, 60, 0.1)
    (run / "ledger/a.parquet").unlink()
    wait_for("its deletion", lambda: not (kept / "ledger/a.parquet").exists(), 60, 0.1)
    assert uploads.finish(60) is None
    found = {path.relative_to(kept).as_posix() for path in kept.rglob("*") if path.is_file()}
    assert found == {"run.json", "judge.state", "ledger/b.parquet"}


def test_server_that_was_away_gets_everything(server: S3Server, tmp_path: Path) -> None:
    bucket = a_bucket(server, server.login(tmp_path / "login"))
    run = a_run(tmp_path / "run")
    uploads = Uploads(bucket, run, RUN)
    uploads.begin("run.json")
    server.stop()
    (run / "ledger/one.parquet").write_bytes(b"one")
    assert "1 files are not in the bucket" in (uploads.finish(0.1) or "")
    server.start()
    assert uploads.finish(60) is None
    assert (server.files / "nightly" / RUN / "ledger/one.parquet").read_bytes() == b"one"


def test_refused_login_is_told_without_its_secret(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "ATTEMPTS", 1)
    bucket = a_bucket(server, server.login(tmp_path / "login", secret="another-secret"))
    with pytest.raises(Unreachable) as refused:
        Uploads(bucket, a_run(tmp_path / "run"), RUN).begin("run.json")
    text = str(refused.value)
    assert "another-secret" not in text
    assert (KEY in text, SECRET in text) == (False, False)


def test_downloads_are_readable_by_their_user_alone(server: S3Server, tmp_path: Path) -> None:
    bucket = a_bucket(server, server.login(tmp_path / "login"))
    bucket.upload(a_run(tmp_path / "run") / "run.json", RUN, "ledger/run.json")
    assert bucket.download(RUN, tmp_path / "back")
    found = [tmp_path / "back/ledger", tmp_path / "back/ledger/run.json"]
    assert [stat.S_IMODE(path.stat().st_mode) & 0o077 for path in found] == [0, 0]
