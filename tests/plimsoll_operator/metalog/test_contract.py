"""What every shell of the metadata log promises."""

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest
from tests.plimsoll_operator.metalog.shells import SLOTS, Crash, Shell
from tests.plimsoll_operator.metalog.writer import Writer, image_of, marked, marks, new_nonce

from plimsoll_operator.metalog import codec
from plimsoll_operator.metalog.interface import (
    AppendConflict,
    Batch,
    OpenedLog,
    UnknownRecord,
)


async def test_new_log_is_empty_and_starts_at_zero(shell: Shell) -> None:
    opened = await shell.log().open()
    assert (opened.snapshot, opened.batches) == (None, ())
    assert (opened.tip.next_sequence, opened.tip.next_offset, opened.tip.nonce) == (0, 0, None)


async def test_metadata_log_reopened_reads_back_all_appended_batches(shell: Shell) -> None:
    writer = Writer(shell.log())
    await writer.take_over()
    await writer.put("a", "b")
    await writer.put("ü 𝄞 \u2028 <&> \\ \" '", padding=3)
    again = await shell.log().open()
    assert image_of(again) == writer.image
    assert again.tip == writer.tip
    assert writer.log.nonce_at(3) == writer.log.nonce_at(2) != writer.log.nonce_at(1)
    assert writer.log.nonce_at(4) == writer.tip.nonce
    assert writer.log.nonce_at(5) is None


async def test_write_time_is_read_but_not_compared(shell: Shell) -> None:
    writer = Writer(shell.log())
    await writer.take_over()
    written_ms = 1_700_000_000_000
    (batch,) = codec.pack([marked("a")], writer.tip, writer.epoch, new_nonce, written_ms)
    await writer.send(batch)
    read = (await shell.log().open()).batches
    assert [one.written_ms for one in read] == [0, written_ms]
    assert read[1] == replace(batch, written_ms=0), "a webhook may drop it"


async def test_deposed_writer_conflicts_and_leaves_nothing(shell: Shell) -> None:
    old, new = Writer(shell.log(), "old"), Writer(shell.log(), "new")
    await old.take_over()
    await new.take_over()
    with pytest.raises(AppendConflict):
        await old.put("lost")
    assert image_of(await shell.log().open()) == new.image


async def test_log_must_be_opened_again_after_a_conflict(shell: Shell) -> None:
    old, new = Writer(shell.log(), "old"), Writer(shell.log(), "new")
    await old.take_over()
    await new.take_over()
    with pytest.raises(AppendConflict):
        await old.put("lost")
    with pytest.raises(AppendConflict, match="reopened"):
        await old.put("lost too")
    await old.take_over()
    await old.put("kept")
    assert old.image[:2] == new.image[:2]
    assert old.image[-1] == "kept"


async def test_candidate_that_is_overtaken_reads_on(shell: Shell) -> None:
    active, candidate = Writer(shell.log(), "active"), Writer(shell.log(), "candidate")
    await active.take_over()
    await candidate.open()
    await active.put("meanwhile")
    with pytest.raises(AppendConflict):
        await candidate.send(candidate.term())
    await candidate.take_over()
    assert candidate.image[:2] == active.image
    with pytest.raises(AppendConflict):
        await active.put("too late")


@pytest.mark.parametrize("laps", [1, 2, 3])
async def test_candidate_frozen_over_ring_wrap_never_commits(shell: Shell, laps: int) -> None:
    active, frozen = Writer(shell.log(), "active"), Writer(shell.log(), "frozen")
    await active.take_over()
    await frozen.open()
    term = frozen.term()
    while active.tip.next_sequence < laps * SLOTS + term.sequence:
        await active.write(1, "go round")
    await active.snapshot()
    with pytest.raises(AppendConflict):
        await frozen.send(term)
    assert image_of(await shell.log().open()) == active.image


@pytest.mark.parametrize("laps", [1, 2])
async def test_controller_frozen_over_ring_wrap_never_commits(shell: Shell, laps: int) -> None:
    frozen, active = Writer(shell.log(), "frozen"), Writer(shell.log(), "active")
    await frozen.take_over()
    await frozen.put("mine")
    await active.take_over()
    while active.tip.next_sequence < laps * SLOTS + frozen.tip.next_sequence + 1:
        await active.write(1, "go round")
    await active.snapshot()
    with pytest.raises(AppendConflict):
        await frozen.put("lost")
    assert image_of(await shell.log().open()) == active.image


async def test_snapshot_replaces_what_it_covers(shell: Shell) -> None:
    writer = Writer(shell.log())
    await writer.take_over()
    await writer.put("a")
    taken = await writer.snapshot()
    await writer.put("b")
    opened = await shell.log().open()
    assert opened.snapshot is not None
    assert opened.snapshot.name == taken.name
    assert marks(opened.batches) == [f"took {taken.name}", "b"]
    assert image_of(opened) == writer.image


async def test_snapshots_are_deleted_only_when_strictly_older(shell: Shell) -> None:
    writer = Writer(shell.log())
    await writer.take_over()
    first = await writer.snapshot()
    unfinished = await writer.write_snapshot()
    await writer.put("a")
    second = await writer.write_snapshot()
    assert await shell.snapshot_names() == sorted([first.name, unfinished.name, second.name])
    await writer.put_records([second])
    await writer.log.release(second)
    assert await shell.snapshot_names() == [second.name]


async def test_torn_snapshot_is_ignored(shell: Shell) -> None:
    writer = Writer(shell.log())
    await writer.take_over()
    whole = await writer.snapshot()
    await writer.put("a")
    torn = await writer.write_snapshot()
    await shell.tear_snapshot(torn.name)
    await writer.put("b")
    opened = await shell.log().open()
    assert opened.snapshot is not None
    assert opened.snapshot.name == whole.name
    assert image_of(opened) == writer.image


async def test_unannounced_snapshot_frees_nothing(
    shell: Shell,
) -> None:
    writer = Writer(shell.log())
    await writer.take_over()
    await writer.put("a")
    quiet = await writer.write_snapshot()
    successor = Writer(shell.log())
    await successor.take_over()
    await shell.tear_snapshot(quiet.name)
    opened = await shell.log().open()
    assert opened.snapshot is None
    assert image_of(opened) == successor.image


async def test_group_counts_only_when_it_is_complete(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codec, "BATCH_BYTES_MAX", 300)
    writer = Writer(shell.log())
    await writer.take_over()
    parts = codec.pack([marked(f"g{n}") for n in range(10)], writer.tip, 1, new_nonce)
    assert len(parts) > 1
    for part in parts[:-1]:
        await writer.log.append(part)
    half = await shell.log().read()
    assert image_of(half) == writer.image
    assert half.tip.next_offset == writer.tip.next_offset
    await writer.log.append(parts[-1])
    whole = await shell.log().read()
    assert image_of(whole) == [*writer.image, *(f"g{n}" for n in range(10))]
    assert writer.log.nonce_at(whole.tip.next_offset) == parts[-1].nonce


async def test_new_term_voids_an_unfinished_group(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codec, "BATCH_BYTES_MAX", 300)
    old, new = Writer(shell.log(), "old"), Writer(shell.log(), "new")
    await old.take_over()
    parts = codec.pack([marked(f"g{n}") for n in range(10)], old.tip, 1, new_nonce)
    await old.log.append(parts[0])
    await new.take_over()
    await new.put("after")
    opened = await shell.log().open()
    assert image_of(opened) == new.image == [old.image[0], new.image[1], "after"]
    assert [batch.base_offset for batch in opened.batches] == [0, 1, 2]
    with pytest.raises(AppendConflict):
        await old.log.append(parts[1])


async def test_cancelled_append_requires_reopening_the_log(shell: Shell) -> None:
    writer = Writer(shell.log())
    await writer.take_over()
    task = asyncio.create_task(writer.put("perhaps"))
    await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    if "perhaps" not in writer.acked:
        with pytest.raises(AppendConflict, match="reopened"):
            await writer.put("never")
    await writer.take_over()
    await writer.put("surely")
    assert image_of(await shell.log().open()) == writer.image
    assert "never" not in writer.image


async def test_empty_log_can_be_followed(shell: Shell) -> None:
    writer = Writer(shell.log())
    await writer.open()
    stream = shell.log().watch()
    first = await anext(stream)
    assert isinstance(first, OpenedLog)
    seen = asyncio.create_task(anext(stream))
    await writer.take_over()
    batch = await seen
    assert isinstance(batch, Batch)
    assert marks([batch]) == writer.image
    await stream.aclose()  # type: ignore[attr-defined]


async def test_standby_that_fell_behind_reads_everything_again(shell: Shell) -> None:
    writer = Writer(shell.log())
    await writer.take_over()
    stream = shell.log().watch()
    image = image_of(await anext(stream))  # type: ignore[arg-type]
    while writer.tip.next_sequence < 3 * SLOTS:
        await writer.write(1, "on ")
    await writer.snapshot()
    while image != writer.image:
        step = await asyncio.wait_for(anext(stream), 30)
        image = image_of(step) if isinstance(step, OpenedLog) else [*image, *marks([step])]
    await stream.aclose()  # type: ignore[attr-defined]


async def test_records_of_newer_version_are_refused_by_name(shell: Shell) -> None:
    writer = Writer(shell.log())
    await writer.take_over()
    batch = codec.pack([marked("x")], writer.tip, 1, new_nonce)[0]
    newer = batch.records_json.replace(b"MembersChanged", b"MoonPhaseChanged")
    await writer.log.append(codec.sealed(batch, newer))
    opened = await shell.log().open()
    with pytest.raises(UnknownRecord, match="MoonPhaseChanged"):
        codec.decode_records(opened.batches[-1])


async def script(writer: Writer, attempted: list[str]) -> None:
    """Every kind of write there is."""

    async def put(*texts: str, padding: int = 0) -> None:
        attempted.extend(text + "." * padding for text in texts)
        await writer.put(*texts, padding=padding)

    await writer.open()
    term = writer.term()
    attempted += marks([term])
    await writer.send(term)
    await put("a")
    await put("b", padding=20_000)
    for text in ("c", "d"):
        taken = await writer.write_snapshot()
        attempted.append(taken.cause)
        await writer.put_records([taken])
        await writer.log.release(taken)
        await put(text)
    codec.BATCH_BYTES_MAX, before = 300, codec.BATCH_BYTES_MAX
    try:
        await put(*(f"g{number}" for number in range(8)))
    finally:
        codec.BATCH_BYTES_MAX = before


@pytest.mark.slow
@pytest.mark.parametrize("how", ["before", "after", "half"])
async def test_crash_between_writes_loses_nothing_acknowledged(mortal: Shell, how: str) -> None:
    step = 0
    finished = False
    while not finished:
        await mortal.reset()
        writer, attempted = Writer(mortal.log(), f"first {step}"), list[str]()
        with pytest.MonkeyPatch.context() as patch:
            mortal.crash_at(step, how, patch)
            try:
                await script(writer, attempted)
                finished = True
            except (Crash, BaseExceptionGroup):
                pass
        successor = Writer(mortal.log(), "second")
        opened = await successor.open()
        image = image_of(opened)
        await mortal.land()
        await successor.take_over()
        survived = successor.image[:-1]
        assert image == survived[: len(image)]
        assert survived == attempted[: len(survived)]
        assert writer.acked == survived[: len(writer.acked)]
        assert len(survived) - len(writer.acked) in (0, 1, 8)
        await successor.snapshot()
        await successor.put("on it goes")
        assert image_of(await mortal.log().open()) == successor.image
        step += mortal.crash_stride
    assert step > 20
