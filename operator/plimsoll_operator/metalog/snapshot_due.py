"""The rule for when a snapshot is due, and the encoding that proves an image complete. Pure.

Called by both shells. A snapshot is compressed with zlib; a reader verifies the SHA-256 of the
stored bytes and the size of the image before it accepts it.
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass

WEIGHT_BYTES_MIN = 4 * 1024 * 1024
IMAGE_BYTES_MAX = 512 * 1024 * 1024


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def compress(image_bytes: bytes) -> bytes:
    return zlib.compress(image_bytes, 6)


def decompress(stored: bytes, image_size: int) -> bytes | None:
    """Return None if the bytes are not a complete image of that size."""
    if not 0 <= image_size <= IMAGE_BYTES_MAX:
        return None
    inflater = zlib.decompressobj()
    try:
        image = inflater.decompress(stored, image_size + 1)
    except zlib.error:
        return None
    return image if inflater.eof and len(image) == image_size else None


@dataclass(slots=True)
class Weight:
    """Bytes of batches since the last released snapshot, against that snapshot's size."""

    batch_bytes: int = 0
    snapshot_bytes: int = 0

    def due(self) -> bool:
        return self.batch_bytes > max(WEIGHT_BYTES_MIN, 2 * self.snapshot_bytes)
