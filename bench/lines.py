"""Text that kcat sends line by line."""

from __future__ import annotations

from pathlib import Path


def make_lines(path: Path, megabytes: int, record_bytes: int) -> None:
    """Numbered lines of words: text that a codec makes about a quarter of."""
    words = [b"%x" % (n * 2654435761 % 2**32) for n in range(997)]
    with path.open("wb") as file:
        for n in range(megabytes * 1_000_000 // record_bytes):
            line = b"%010d " % n
            while len(line) < record_bytes:
                line += words[(n * 31 + len(line)) % 97] + b" "
            file.write(line[: record_bytes - 1] + b"\n")
