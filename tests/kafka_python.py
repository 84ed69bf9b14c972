"""What tests of any tier need to know of kafka-python."""

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

LEFT_SOCKETS = pytest.mark.filterwarnings(
    "ignore:unclosed <socket:ResourceWarning", "ignore:unclosed transport <:ResourceWarning"
)
"""For tiers in which nothing of ours opens sockets: the collector may come in another test.
aiokafka leaves transports, too: its close does not wait for the end of a TLS connection."""


@contextmanager
def left_sockets() -> Iterator[None]:
    """kafka-python leaves the sockets of connects it gave up to the garbage collector.  Decorates
    whole functions: their clients are garbage only when their variables are gone."""
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
