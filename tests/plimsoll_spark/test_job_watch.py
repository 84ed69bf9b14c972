"""The watch of Spark's work ends it when another driver works on the run."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from plimsoll_spark.attempts import Superseded
from plimsoll_spark.job_watch import watch


def test_work_is_cancelled_when_a_later_driver_begins() -> None:
    """Else the earlier one would go on until its work ends."""
    cancelled = threading.Event()
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(cancelAllJobs=cancelled.set))

    def tell() -> None:
        raise Superseded("a later one has begun")

    with pytest.raises(Superseded):
        watch(
            spark, lambda: cancelled.wait(300), tell, until_s=time.time() + 300, cancel_within_s=300
        )
    assert cancelled.is_set()
