"""The evidence of a run in a bucket of a real S3 server."""

import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import pytest
from tests.integration.local_cluster import wait_for
from tests.plimsoll_spark.s3_server import BUCKET, KEY, SECRET, S3Server

from plimsoll_spark import bucket as s3
from plimsoll_spark.attempts import Superseded
from plimsoll_spark.bucket import Bucket, Unreachable
from plimsoll_spark.evidence import BegunMeanwhile, Evidence, begun, resumed
from plimsoll_spark.settings import S3, Produce, Settings
from plimsoll_spark.settings import Evidence as Requested
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
    uploads = Uploads(bucket, run, RUN, lambda: None)
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
    uploads = Uploads(bucket, run, RUN, lambda: None, {"run.json", "judge.state", "ledger"})
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
    uploads = Uploads(bucket, run, RUN, lambda: None)
    uploads.begin("run.json")
    server.stop()
    (run / "ledger/one.parquet").write_bytes(b"one")
    assert "1 evidence files of the Verification's run could not be copied to the bucket" in (
        uploads.finish(0.1) or ""
    )
    server.start()
    assert uploads.finish(60) is None
    assert (server.files / "nightly" / RUN / "ledger/one.parquet").read_bytes() == b"one"


def test_refused_login_is_told_without_its_secret(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "ATTEMPTS", 1)
    bucket = a_bucket(server, server.login(tmp_path / "login", secret="another-secret"))
    with pytest.raises(Unreachable) as refused:
        Uploads(bucket, a_run(tmp_path / "run"), RUN, lambda: None).begin("run.json")
    text = str(refused.value)
    assert "another-secret" not in text
    assert (KEY in text, SECRET in text) == (False, False)


def test_downloads_are_readable_by_their_user_alone(server: S3Server, tmp_path: Path) -> None:
    bucket = a_bucket(server, server.login(tmp_path / "login"))
    bucket.upload(a_run(tmp_path / "run") / "run.json", RUN, "ledger/run.json")
    assert bucket.download(RUN, tmp_path / "back")
    found = [tmp_path / "back/ledger", tmp_path / "back/ledger/run.json"]
    assert [stat.S_IMODE(path.stat().st_mode) & 0o077 for path in found] == [0, 0]


def test_object_is_created_once(server: S3Server, tmp_path: Path) -> None:
    bucket = a_bucket(server, server.login(tmp_path / "login"))
    assert bucket.names(RUN, "attempts") == []
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: bucket.create(RUN, "attempts/1", b"%d" % n), range(8)))
    assert made.count(True) == 1
    assert bucket.create(RUN, "attempts/1", b"%d" % made.index(True)), "its answer was lost"
    assert not bucket.create(RUN, "attempts/1", b"other")
    assert bucket.names(RUN, "attempts") == ["1"]
    server.stop()
    with pytest.raises(Unreachable) as refused:
        bucket.create(RUN, "attempts/2", b"x")
    assert SECRET not in str(refused.value)


def test_earlier_driver_copies_nothing_beside_a_later_one(server: S3Server, tmp_path: Path) -> None:
    bucket = a_bucket(server, server.login(tmp_path / "login"))
    asked = Settings(
        name=RUN,
        bootstrap="b",
        topic="t",
        produce=Produce(records=5),
        evidence=Requested(s3=S3(bucket=BUCKET)),
    )
    first = Evidence(asked, tmp_path / "first", bucket)
    assert first.earlier() is None
    first.begin(begun(asked, "1", "id", {}))
    second = Evidence(asked, tmp_path / "second", bucket)
    found = second.earlier()
    assert found is not None
    second.begin(resumed(found, asked))
    (first.directory / "results" / "late").write_text("x")
    wait_for("the fence", lambda: ended(first), 60, 0.1)
    with pytest.raises(Superseded):
        first.store_results({"verdict.json": "first"})
    with pytest.raises(Superseded):
        first.discard()
    assert second.store_results({"verdict.json": "second"}) is None
    kept = server.files / "nightly" / RUN
    assert (kept / "results/000002/verdict.json").read_text() == "second"
    assert not (kept / "results/late").exists()


def test_paused_drivers_run_replaces_no_later_one(server: S3Server, tmp_path: Path) -> None:
    bucket = a_bucket(server, server.login(tmp_path / "login"))
    asked = Settings(
        name=RUN,
        bootstrap="b",
        topic="t",
        produce=Produce(records=5),
        evidence=Requested(s3=S3(bucket=BUCKET)),
    )
    first, second = (Evidence(asked, tmp_path / name, bucket) for name in ("first", "second"))
    upload = bucket.upload

    def upload_late(path: Path, run: str, name: str) -> None:
        if name == "runs/000001.json":
            second.begin(begun(asked, "second", "id", {}))
        upload(path, run, name)

    assert (first.earlier(), second.earlier()) == (None, None)
    with mock.patch.object(bucket, "upload", upload_late), pytest.raises(Superseded):
        first.begin(begun(asked, "first", "id", {}))
    found = Evidence(asked, tmp_path / "third", bucket).earlier()
    assert found is not None
    assert (found.id, found.attempt) == ("second", 2)


def test_run_that_another_driver_began_is_continued(server: S3Server, tmp_path: Path) -> None:
    bucket = a_bucket(server, server.login(tmp_path / "login"))
    asked = Settings(
        name=RUN,
        bootstrap="b",
        topic="t",
        produce=Produce(records=5),
        evidence=Requested(s3=S3(bucket=BUCKET)),
    )
    first, second = (Evidence(asked, tmp_path / name, bucket) for name in ("first", "second"))
    assert second.earlier() is None
    first.begin(begun(asked, "first", "id", {}))
    with pytest.raises(BegunMeanwhile):
        second.begin(begun(asked, "second", "id", {}))
    found = second.earlier()
    assert found is not None
    kept = second.begin(resumed(found, asked))
    assert (kept.id, kept.writes) == ("first", False)


def ended(driver: Evidence) -> bool:
    try:
        driver.check()
    except Superseded:
        return True
    return False
