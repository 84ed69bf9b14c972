"""Reads the times, offsets and lengths of the records inside a batch.

Called, off the event loop, to find the offset for a timestamp, and to check every batch that a
client sends. Keys, values and headers are skipped; `record_sets` reads them. Source: the protocol's
RecordBatch v2 (zigzag varints throughout).
"""

from __future__ import annotations

from collections.abc import Iterator

_VARINT_BYTES_MAX = 10
_INT_BYTES_MAX = 5
_64_BITS = 2**64 - 1
_TIME_MIN, _TIME_MAX = -(2**63), 2**63 - 1


class BadRecords(Exception):
    """Raised if the records of a batch are malformed, or not as many as its header states.
    `indexes`: of the bad records, at least of the first."""

    def __init__(self, sentence: str, index: int = 0, *more: int) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.indexes = (index, *more)


def iter_times(records: bytes, count: int) -> Iterator[tuple[int, int]]:
    """Yield timestamp delta and offset delta of each of `count` records. Records after the last one
    that the caller takes are not read. Raises BadRecords."""
    position, size = 0, len(records)
    try:
        for _ in range(count):
            # Numbers of one and two bytes are read here: that is nearly all, and twice as quick.
            length = records[position]
            if length < 0x80:
                position += 1
                length = (length >> 1) ^ -(length & 1)
            else:
                length, position = read_varint(records, position)
            end = position + length
            if length < 0 or end > size:
                raise BadRecords("the record batch is malformed: a record is longer than the batch")
            timestamp_delta = records[position + 1]  # one byte of attributes before it
            if timestamp_delta < 0x80:
                timestamp_delta = (timestamp_delta >> 1) ^ -(timestamp_delta & 1)
                after = position + 2
            else:
                timestamp_delta, after = read_varint(records, position + 1)
            offset_delta, after = read_varint(records, after)
            if after > end:
                raise BadRecords(
                    "the record batch is malformed: the stated length of a record is less than "
                    "that of its fields"
                )
            yield timestamp_delta, offset_delta
            position = end
    except IndexError:
        raise BadRecords("the record batch is malformed: it ends inside a record") from None


def record_time(base_timestamp: int, timestamp_delta: int) -> int:
    """Return base timestamp plus delta, wrapped to 64 bits as in a Java client: the timestamps that
    clients send are not checked."""
    time = base_timestamp + timestamp_delta
    if _TIME_MIN <= time <= _TIME_MAX:
        return time
    return (time - _TIME_MIN & _64_BITS) + _TIME_MIN


def read_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return the zigzag varint at `position`, and the position after it. Raises IndexError if the
    data ends first. Of a tenth byte only one bit counts, as in Java's readVarlong."""
    value = data[position]
    position += 1
    if value < 0x80:
        return (value >> 1) ^ -(value & 1), position
    value &= 0x7F
    byte = data[position]
    if byte < 0x80:  # nearly all have one byte or two
        value |= byte << 7
        return (value >> 1) ^ -(value & 1), position + 1
    shift = 7
    for _ in range(_VARINT_BYTES_MAX - 1):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= _64_BITS
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    raise BadRecords("the record batch is malformed: a varint in a record has more than ten bytes")


def _read_int(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Read like `read_varint`, with the limits of Java's readVarint: raises BadRecords above five
    bytes."""
    value, after = read_varint(data, position)
    if after - position > _INT_BYTES_MAX:
        raise BadRecords(
            "the record batch is malformed: the length or offset of a record has more than five "
            "bytes"
        )
    return value, after


_TOO_FAR = 2**40
FIRST_STEP = [
    _TOO_FAR if byte & 1 else 1 + (byte >> 1) if byte < 0x80 else 2 + ((byte & 0x7F) >> 1)
    for byte in range(256)
]
"""Distance in bytes to the next record, by the first byte of a record's length. If a second byte
follows, it adds its own distance (`SECOND_STEP`). A negative length, which is odd, and a length of
three bytes give a distance beyond the end of any batch."""
SECOND_STEP = [byte << 6 if byte < 0x80 else _TOO_FAR for byte in range(256)]


GROUP, _GROUP_MAX = 1, 64
"""Number of records that are read one by one before a run of records of equal size is looked for:
at first, and at most, after looks that found none."""
_OF_ONE_BYTE = [bytes((byte,)) for byte in range(256)]
_RUN_FIRST, _RUN_MIN = 64, 16
"""Number of records at which a look for a run of equal sizes begins, and the shortest run after
which another look is worthwhile."""


def check_records(records: bytes | memoryview, count: int) -> None:
    """Check that the bytes are `count` records, at least one: go from record to record by their
    lengths, and check that the last one ends where the data ends. Raises BadRecords with the index
    of the bad record. Since it runs for every produced batch, it checks nothing else. It costs
    about 0.1 µs a record, and less for runs of records of one size, which are compared in one
    slice, without a loop."""
    first, second = FIRST_STEP, SECOND_STEP
    position, left, group, run = 0, count - 1, GROUP, _RUN_FIRST
    try:
        while left > 0:
            for _ in range(group if group < left else left):
                start = position
                byte = records[position]
                if byte < 0x80:
                    position += first[byte]
                else:
                    position += first[byte] + second[records[position + 1]]
            left -= group
            if left <= 0:
                break
            size = position - start
            same = same_size(records, start, size, run if run < left else left)
            position += same * size
            left -= same
            run = 4 * run if same == run else _RUN_FIRST
            group = GROUP if same >= _RUN_MIN else next_group(group, same)
    except IndexError:
        position = _follow(records, count - 1)
    if position >= len(records):
        position = _follow(records, count - 1)
    if not _is_last(records, position, count - 1):
        _check_last(records, position, count - 1)


def next_group(group: int, same: int) -> int:
    """Return how many records to read one by one before the next look for a run of records of equal
    size. `group`: that number before the last look; `same`: how many such records it found."""
    return GROUP if same >= _RUN_MIN else min(4 * group, _GROUP_MAX)


def same_size(records: bytes | memoryview, start: int, size: int, most: int) -> int:
    """Return how many of the up to `most` records after the one at `start`, which takes `size`
    bytes in all, have an equal length field of one or two bytes. They are compared in a slice,
    without a loop."""
    begun, at = records[start], start + size
    found = bytes(records[at : at + most * size : size])
    same = len(found) - len(found.lstrip(_OF_ONE_BYTE[begun]))
    if begun >= 0x80 and same:
        found = bytes(records[at + 1 : at + 1 + same * size : size])
        same = len(found) - len(found.lstrip(_OF_ONE_BYTE[records[start + 1]]))
    return same


def record_starts(records: bytes, count: int) -> list[int]:
    """Return the start of each of `count` records, and the end of the last. Raises BadRecords."""
    first, second = FIRST_STEP, SECOND_STEP
    position, size, left, group, run = 0, len(records), count, GROUP, _RUN_FIRST
    found = [0]
    try:
        while left > 0:
            for _ in range(group if group < left else left):
                start = position
                byte = records[position]
                if byte < 0x80:
                    position += first[byte]
                else:
                    position += first[byte] + second[records[position + 1]]
                found.append(position)
            left -= group
            if left <= 0:
                break
            length = position - start
            same = same_size(records, start, length, min(run, left))
            found.extend(range(position + length, position + same * length + 1, length))
            position += same * length
            left -= same
            run = 4 * run if same == run else _RUN_FIRST
            group = next_group(group, same)
    except IndexError:
        position = size + 1
    return found if position <= size else _starts(records, count)


def _starts(records: bytes, count: int) -> list[int]:
    """Return the same as `record_starts`, for length fields of any size."""
    found, size = [0], len(records)
    for number in range(count):
        try:
            length, position = read_varint(records, found[-1])
        except IndexError:
            raise BadRecords(
                "the record batch is malformed: it ends inside a record", number
            ) from None
        if length < 0 or position + length > size:
            raise BadRecords(
                "the record batch is malformed: a record is longer than the batch", number
            )
        found.append(position + length)
    return found


def _follow(records: bytes | memoryview, count: int) -> int:
    """Return the position after `count` records, where another must begin. Raises BadRecords with
    the index of the bad record."""
    position = 0
    for number in range(count + 1):
        if position > len(records):
            raise BadRecords(
                "the record batch is malformed: the length of a record reaches beyond the end of "
                "the batch",
                number - 1,
            )
        if position == len(records):
            raise BadRecords(
                f"the record batch is malformed: its header states {count + 1} records, but it "
                f"holds {number}",
                number,
            )
        if number == count:
            break
        try:
            length, position = _read_int(records, position)
        except IndexError:
            raise BadRecords(
                "the record batch is malformed: it ends inside a record", number
            ) from None
        except BadRecords as error:
            raise BadRecords(error.sentence, number) from None
        if length < 0:
            raise BadRecords(
                "the record batch is malformed: a record has a negative length", number
            )
        position += length
    return position


def _is_last(records: bytes | memoryview, position: int, index: int) -> bool:
    """Return True if the bytes at `position` are a valid last record with the offset delta `index`
    in the usual form: length and offset take one or two bytes, the timestamp one. If this returns
    False, `_check_last` decides. This check takes half its time."""
    size = len(records)
    if position + 6 > size:
        return False
    byte = records[position]
    if byte < 0x80:
        end, at = position + FIRST_STEP[byte], position + 2
    else:
        after = records[position + 1]
        end, at = position + FIRST_STEP[byte] + SECOND_STEP[after], position + 3
    # There is one byte of attributes, then the time.
    if end != size or records[at] >= 0x80:
        return False
    if index < 0x40:
        return at + 2 <= end and records[at + 1] == 2 * index
    if index >= 0x2000 or at + 3 > end:
        return False
    return records[at + 1] == (2 * index & 0x7F | 0x80) and records[at + 2] == index >> 6


def _check_last(records: bytes | memoryview, position: int, index: int) -> None:
    try:
        length, position = _read_int(records, position)
        end = position + length
        _, position = read_varint(records, position + 1)  # one byte of attributes before the time
        offset_delta, position = _read_int(records, position)
    except IndexError:
        raise BadRecords("the record batch is malformed: it ends inside a record", index) from None
    except BadRecords as error:
        raise BadRecords(error.sentence, index) from None
    if length < 0:
        raise BadRecords("the record batch is malformed: a record has a negative length", index)
    if end > len(records):
        raise BadRecords(
            "the record batch is malformed: the length of a record reaches beyond the end of the "
            "batch",
            index,
        )
    if end < len(records):
        raise BadRecords(
            f"the record batch is malformed: it has bytes after its {index + 1} records", index
        )
    if offset_delta != index:
        raise BadRecords(
            "the record batch is malformed: the offset delta of its last record is "
            f"{offset_delta} instead of {index}",
            index,
        )
    if position > end:
        raise BadRecords(
            "the record batch is malformed: the stated length of a record is less than that of "
            "its fields",
            index,
        )
