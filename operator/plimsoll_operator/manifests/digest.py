"""Names derived from contents: equal contents always give equal names."""

from __future__ import annotations

import hashlib
import json
from typing import Any

LENGTH = 10


def digest(value: Any) -> str:
    """Return the first hex digits of a hash over canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]
