"""Compaction in a broker: which logs, in which process, and what replicas of them have."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.plimsoll_broker.metric_values import told
from tests.plimsoll_broker.storage.cleaning import batches, keyed_batch, latest, records
from tests.plimsoll_broker.test_batch_checks import produced
from tests.plimsoll_broker.test_replication import kill, until
from tests.plimsoll_broker.trio import Broker, Client, Controller

from plimsoll_broker.replication import cleaning_work
from plimsoll_broker.replication.cleaning_work import CleaningProcess
from plimsoll_broker.replication.log_cleaner import LogCleaner
from plimsoll_broker.storage.cleaner.process import Pace
from plimsoll_broker.storage.cleaner.round import CleaningFailed, CleaningJob
from plimsoll_broker.storage.disk import DiskFile, StorageError, StorageFault
from plimsoll_broker.storage.log import Log
from plimsoll_core.cluster.image import apply
from plimsoll_core.cluster.model import TopicObject
from plimsoll_core.cluster.records import MetadataVersionFinalized
from plimsoll_core.errors import Code
from plimsoll_core.messages.topics import TopicObjectGone
from plimsoll_wire.api_versions import ApiKey

pytestmark = pytest.mark.usefixtures("small_segments")

Make = Callable[[int], Broker]
COMPACT = {
    "cleanup.policy": "compact",
    "segment.bytes": "500",
    "min.cleanable.dirty.ratio": "0.1",
}


@pytest.fixture
def controller() -> Controller:
    made = Controller()
    finalized = MetadataVersionFinalized(cause="test", metadata_version=2)
    made.image = apply(made.image, finalized)
    return made


def a_cleaner(one: Broker) -> LogCleaner:
    return LogCleaner(one.manager, lambda: 10_000, one.store.cleaning)


async def overwrite(client: Client, rounds: int = 30) -> None:
    for number in range(rounds):
        batch = keyed_batch(0, [(b"k%d" % (number % 3), b"v" * 40)])
        assert (await client.produce("t", batch))[0] == Code.NONE


def a_log(one: Broker) -> Log:
    return one.hosted("t").log


async def test_compacted_log_shrinks_to_last_records(controller: Controller, broker: Make) -> None:
    one = await broker(0).start()
    controller.create("t", (0,), **COMPACT)
    await overwrite(await one.client())
    log = a_log(one)
    before, size = latest(log), log.size
    await a_cleaner(one).run()
    assert latest(log) == before
    assert log.size < size / 2
    assert one.store.cleaned_ends.get(("t", 0)) == log.segments[-1].base_offset


async def test_metrics_show_cleaned_and_waiting_logs(controller: Controller, broker: Make) -> None:
    one = await broker(0).start()
    controller.create("t", (0,), **COMPACT)
    await overwrite(await one.client())
    cleaner, dirty = a_cleaner(one), sum(segment.size for segment in a_log(one).segments[:-1])
    await cleaner._dirtiest()
    seen = told(one.manager)
    assert (seen["cleaner_due_logs"], seen["cleaner_due_bytes"]) == (1, dirty)
    assert seen["cleaner_max_dirty_ratio"] == 1
    assert seen["cleaner_rounds_total"] == seen["cleaner_read_bytes_total"] == 0
    await cleaner.run()
    seen = told(one.manager)
    assert seen["cleaner_rounds_total"] == 1
    assert seen["cleaner_read_bytes_total"] == dirty
    assert 0 < seen["cleaner_written_bytes_total"] < dirty
    assert seen["cleaner_due_logs"] == seen["cleaner_max_dirty_ratio"] == 0
    assert seen["cleaner_failures_total"] == seen["cleaner_uncleanable_logs"] == 0


async def test_log_with_damaged_segment_counts_as_uncleanable(
    controller: Controller, broker: Make
) -> None:
    one = await broker(0).start()
    controller.create("t", (0,), **COMPACT)
    await overwrite(await one.client())
    cleaner = a_cleaner(one)

    async def damaged(_: object) -> int:
        raise CleaningFailed("a segment is damaged", damaged=True)

    cleaner._work.begin = damaged  # type: ignore[method-assign]
    await cleaner.run()
    await cleaner.run()
    seen = told(one.manager)
    assert (seen["cleaner_failures_total"], seen["cleaner_uncleanable_logs"]) == (1, 1)
    one.manager.drop(one.hosted("t"))
    await cleaner.run()
    assert told(one.manager)["cleaner_uncleanable_logs"] == 0


async def test_log_below_its_dirty_ratio_is_left_alone(
    controller: Controller, broker: Make
) -> None:
    one = await broker(0).start()
    controller.create("t", (0,), **{**COMPACT, "min.cleanable.dirty.ratio": "1"})
    await overwrite(await one.client())
    count = len(records(a_log(one)))
    await a_cleaner(one).run()
    assert len(records(a_log(one))) == count


async def test_nothing_above_the_high_watermark_is_cleaned(
    controller: Controller, broker: Make
) -> None:
    """K2: nothing that may still be cut decides what is superseded."""
    one, two = await broker(0).start(), await broker(1).start()
    controller.create("t", (0, 1), **COMPACT)
    client = await one.client()
    await overwrite(client, 3)
    two.path.fetchers.unfollow(two.hosted("t"))
    for _ in range(20):
        await client.produce("t", keyed_batch(0, [(b"k0", b"v" * 40)]), acks=1)
    hosted = one.hosted("t")
    assert hosted.replica.high_watermark < hosted.log.log_end_offset
    count = len(records(hosted.log))
    await a_cleaner(one).run()
    assert len(records(hosted.log)) == count


@pytest.mark.parametrize("codec", [0, 2])
async def test_record_without_key_is_refused_when_compacted(
    controller: Controller, broker: Make, codec: int
) -> None:
    one = await broker(0).start()
    controller.create("t", (0,), **COMPACT)
    controller.create("plain", (0,))
    client = await one.client()
    batch = keyed_batch(0, [(b"k", b"v"), (None, b"v")], codec=codec)
    assert (await client.produce("t", batch))[0] == Code.INVALID_RECORD
    assert (await client.produce("plain", batch))[0] == Code.NONE
    many = keyed_batch(0, [(b"k", b"v")] * 3_000 + [(None, b"v")], codec=codec)
    assert (await client.produce("t", many))[0] == Code.INVALID_RECORD
    assert (await client.produce("t", keyed_batch(0, [(b"", b"v")])))[0] == Code.NONE


async def test_refusal_names_each_record_without_key(controller: Controller, broker: Make) -> None:
    """librdkafka and Java tell the others that they were only in its batch."""
    one = await broker(0).start()
    controller.create("t", (0,), **COMPACT)
    client = await one.client()
    batch = keyed_batch(0, [(None if i % 10 == 0 else b"k", b"v") for i in range(100)])
    reply = await client.ask(ApiKey.PRODUCE, 9, produced(batch))
    refused = reply.responses[0].partition_responses[0]
    named = {bad.batch_index: bad.batch_index_error_message for bad in refused.record_errors}
    assert list(named) == list(range(0, 100, 10))
    assert [text for text in named.values() if text] == [refused.error_message], "told once"
    too_many = keyed_batch(0, [(None, b"v")] * 1_001)
    reply = await client.ask(ApiKey.PRODUCE, 9, produced(too_many))
    assert len(reply.responses[0].partition_responses[0].record_errors) == 1_000


async def test_fresh_follower_of_compacted_log_reaches_end(
    controller: Controller, broker: Make
) -> None:
    """K4, K5: and has the same last record of each key, and the same terms."""
    one = await broker(0).start()
    two = broker(1)
    await two.start()
    controller.create("t", (0, 1), **COMPACT)
    await overwrite(await one.client())
    await kill(two)
    await a_cleaner(one).run()
    late = Broker(controller, 1, two.directory.with_name("another"))
    await late.start()
    try:
        await until(lambda: late.manager.by_name("t", 0) is not None)
        await until(lambda: a_log(late).log_end_offset == a_log(one).log_end_offset)
        assert list(batches(a_log(late))) == list(batches(a_log(one)))
        assert latest(a_log(late)) == latest(a_log(one))
        await until(lambda: len(controller.partition("t").isr) == 2)
        await a_cleaner(late).run()
        assert latest(a_log(late)) == latest(a_log(one))
    finally:
        await late.stop()


async def test_topic_that_was_never_compacted_takes_no_hole(
    controller: Controller, broker: Make
) -> None:
    """A follower refuses what does not begin at its end; so does a start."""
    one = await broker(0).start()
    controller.create("plain", (0,))
    controller.create("t", (0,), **COMPACT)
    await until(lambda: one.manager.by_name("t", 0) is not None)
    assert not one.hosted("plain").log.holes
    assert one.hosted("t").log.holes


async def test_full_disk_ends_round_and_later_resumes(
    controller: Controller, broker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await broker(0).start()
    controller.create("t", (0,), **COMPACT)
    await overwrite(await one.client())
    log, size = a_log(one), a_log(one).size
    append = DiskFile.append

    def full(file: DiskFile, data: bytes) -> None:
        if "cleaned" in file.path.name:
            raise StorageError(StorageFault.FULL, file.path, "no space left")
        append(file, data)

    with monkeypatch.context() as patch:
        patch.setattr(DiskFile, "append", full)
        await a_cleaner(one).run()
    seen = told(one.manager)
    assert (seen["cleaner_failures_total"], seen["cleaner_due_logs"]) == (1, 1)
    assert seen["cleaner_rounds_total"] == seen["cleaner_written_bytes_total"] == 0
    assert (log.size, log.fault, one.hosted("t").replica.failed) == (size, None, False)
    assert not [name for name in os.listdir(log.directory) if "cleaned" in name]
    await a_cleaner(one).run()
    assert log.size < size


async def test_truncated_log_keeps_nothing_of_the_round(
    controller: Controller, broker: Make
) -> None:
    one = await broker(0).start()
    controller.create("t", (0,), **COMPACT)
    await overwrite(await one.client())
    log, cleaner = a_log(one), a_cleaner(one)
    clean = cleaner._work.clean

    async def cut_meanwhile(bases):
        made = await clean(bases)
        log.truncate_to(0)
        return made

    cleaner._work.clean = cut_meanwhile
    await cleaner.run()
    assert (log.size, log.log_end_offset) == (0, 0)
    assert not [name for name in os.listdir(log.directory) if "swap" in name]


@pytest.mark.parametrize("how", ["cut", "dropped", "its first segments are removed"])
async def test_log_changed_during_read_is_not_damaged(
    controller: Controller, broker: Make, how: str
) -> None:
    one = await broker(0).start()
    controller.create("t", (0,), **COMPACT)
    await overwrite(await one.client())
    log, cleaner = a_log(one), a_cleaner(one)
    assert len(log.segments) > 2

    async def read_meanwhile(_: object) -> int:
        if how == "cut":
            log.truncate_to(0)
        elif how == "dropped":
            one.manager.drop(one.hosted("t"))
        else:
            log.advance_log_start(log.segments[1].base_offset)
            log.remove_first(1)
        raise CleaningFailed("a batch ends in the middle", damaged=True)

    cleaner._work.begin = read_meanwhile  # type: ignore[method-assign]
    await cleaner.run()
    seen = told(one.manager)
    assert (seen["cleaner_failures_total"], seen["cleaner_uncleanable_logs"]) == (0, 0)
    assert not cleaner._uncleanable


@pytest.mark.parametrize("how", ["cut", "made again"])
async def test_note_of_a_round_is_about_its_log(
    controller: Controller, broker: Make, how: str
) -> None:
    """Otherwise the new or shorter log would count as incomplete after the next restart."""
    one = await broker(0).start()
    controller.create("t", (0,), **COMPACT)
    await overwrite(await one.client())
    old, cleaner = one.hosted("t"), a_cleaner(one)
    begin = cleaner._work.begin

    async def changed_meanwhile(job: CleaningJob) -> int:
        end = await begin(job)
        if how == "cut":
            old.log.truncate_to(3)
        else:
            gone = TopicObjectGone(
                object=TopicObject(namespace="test", name="t", uid="t"),
                server_now_ms=10**12,
                grace_ms=0,
                removals_per_hour_max=99,
                acknowledged=True,
            )
            while "t" in controller.image.topic_ids:
                controller.request(gone)
            controller.create("t", (0,), **COMPACT)
            await until(lambda: one.manager.by_name("t", 0) not in (None, old))
        return end

    cleaner._work.begin = changed_meanwhile  # type: ignore[method-assign]
    await cleaner.run()
    assert (one.store.superseding_ends.get(("t", 0)) or 0) <= a_log(one).log_end_offset
    assert not one.store.superseding_lost(a_log(one))


# --- in a process of its own ----------------------------------------------------------------------


async def test_cleaning_process_does_what_a_thread_does(
    controller: Controller, broker: Make
) -> None:
    one = await broker(0).start()
    controller.create("t", (0,), **COMPACT)
    await overwrite(await one.client())
    one.store.cleaning = CleaningProcess(2**40)
    log = a_log(one)
    before, size = latest(log), log.size
    await a_cleaner(one).run()
    assert latest(log) == before
    assert log.size < size / 2
    assert one.store.cleaning._process is None, "none is kept while nothing is due"


async def test_dying_cleaner_process_changes_nothing(controller: Controller, broker: Make) -> None:
    one = await broker(0).start()
    controller.create("t", (0,), **COMPACT)
    await overwrite(await one.client())
    log, size = a_log(one), a_log(one).size
    work = one.store.cleaning = CleaningProcess(2**40)
    begin = work.begin

    async def then_die(job):
        end = await begin(job)
        assert work._process is not None
        pid = work._process.pid
        assert os.getpriority(os.PRIO_PROCESS, pid) == 19
        assert os.getsid(pid) == pid
        if (session := Path(f"/proc/{pid}/autogroup")).exists() and session.read_text():
            assert session.read_text().endswith(" nice 10\n")
        work._process.kill()
        return end

    work.begin = then_die
    await a_cleaner(one).run()
    assert log.size == size
    work.begin = begin
    await a_cleaner(one).run()
    assert log.size < size


async def test_cleaner_without_low_priority_uses_brokers_share(
    controller: Controller,
    broker: Make,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    refused = cleaning_work._PROGRAM.replace("why = {work}()", "why = {work}() or REFUSED")
    refused = f"REFUSED = 'refused' if '{{work}}' == 'work_in_background' else None; {refused}"
    monkeypatch.setattr(cleaning_work, "_PROGRAM", refused)
    one = await broker(0).start()
    controller.create("t", (0,), **COMPACT)
    await overwrite(await one.client())
    work = one.store.cleaning = CleaningProcess(2**40)
    begin = work.begin
    seen: list[tuple[bool, int]] = []

    async def look(job):
        end = await begin(job)
        assert work._process is not None
        pid = work._process.pid
        seen.append((os.getsid(pid) == os.getsid(0), os.getpriority(os.PRIO_PROCESS, pid)))
        return end

    work.begin = look
    log, size = a_log(one), a_log(one).size
    for _ in range(2):
        await a_cleaner(one).run()
        await overwrite(await one.client())
    assert log.size < size * 2
    assert seen == [(True, 19)] * len(seen)
    said = [one.message for one in caplog.records if one.name == "plimsoll.cleaner"]
    line = (
        "this broker could not lower the CPU priority of the process that cleans compacted logs; "
        "cleaning works, but may slow down clients' requests; if it does, give the broker more "
        "CPU: refused"
    )
    assert said.count(line) == 1
    assert told(one.manager)["cleaner_in_brokers_share"] == 1


def test_pace_keeps_to_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("time.sleep", sleep)
    pace = Pace(1_000)
    for _ in range(100):
        pace.used(100)
    assert sum(slept) == pytest.approx(10, abs=0.1)
