"""Always the same lives of a log with transactions; `make storage` goes on with those without."""

import logging

import pytest
from tests.plimsoll_broker.storage.many_lives import live
from tests.plimsoll_broker.storage.transactional_lives import TransactionalLives


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_random_lives_keep_transactions() -> None:
    logging.disable(logging.ERROR)  # of the bits that are flipped
    try:
        live(100, 40, of=TransactionalLives)
    finally:
        logging.disable(logging.NOTSET)
