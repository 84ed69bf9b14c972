"""The imports from kio: its generated schemas and error codes.

Where hypothesis can be imported, kio imports it to register its types with it: no less than all the
rest that a broker imports, so it would double the time until a broker of a development environment
serves.  It is hidden while kio is imported, unless it is imported already: its importer may want
the types (the tests).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def _hidden(name: str) -> Iterator[None]:
    """Hide a module from imports, unless it is imported already."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]


with _hidden("hypothesis"):
    from kio.index import load_request_schema, load_response_schema
    from kio.schema.errors import ErrorCode

__all__ = ["ErrorCode", "load_request_schema", "load_response_schema"]
