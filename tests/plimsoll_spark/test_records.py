"""A driven record names itself, and can be told from every other."""

from plimsoll_spark.records import HEADER_BYTES, PREFIX_BYTES, Encoder, key_of, sequence_of


def hash_of(value: bytes) -> bytes:
    return value[PREFIX_BYTES:HEADER_BYTES]


def test_value_has_requested_size_and_sequence() -> None:
    for record_bytes in (HEADER_BYTES, 17, 1024):
        value = Encoder(run="r", producer=3, record_bytes=record_bytes).value(2**40)
        assert len(value) == record_bytes
        assert sequence_of(value) == 2**40


def test_checksums_of_the_same_record_differ_between_runs() -> None:
    mine = Encoder(run="mine", producer=0, record_bytes=64).value(7)
    other = Encoder(run="other", producer=0, record_bytes=64).value(7)
    assert hash_of(mine) != hash_of(other)


def test_producers_and_sequences_have_hashes_of_their_own() -> None:
    encoders = [Encoder(run="r", producer=p, record_bytes=HEADER_BYTES) for p in range(4)]
    hashes = {hash_of(e.value(s)) for e in encoders for s in range(250)}
    assert len(hashes) == 1000


def test_all_requested_keys_are_used() -> None:
    used = {key_of(1, sequence, 50) for sequence in range(5_000)}
    assert used == {f"k{number}" for number in range(50)}
