"""Always the same few hundred lives of a log; `make storage FOR=600` goes on with others."""

import logging

import pytest
from tests.plimsoll_broker.storage.many_lives import live


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_random_lives_keep_the_logs_promises() -> None:
    logging.disable(logging.ERROR)  # of the bits that are flipped
    try:
        live(150, 50)
    finally:
        logging.disable(logging.NOTSET)
