"""The settings of transactions, as the brokers' configs state them, and fixed limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from plimsoll_core.cluster.cluster_configs import own_integer

TRANSACTIONAL_ID_BYTES_MAX = 255
EPOCH_MAX = 2**15 - 2
"""The greatest epoch that a producer gets. One more is reserved to fence a producer with it."""
PARTITIONS_MAX = 10_000
"""The most partitions of one transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """`timeout_ms_max`: the greatest timeout that a producer may state. `expiration_ms`: an id that
    is idle for so long is forgotten, looked at every `expiration_check_ms`. `commit_timeout_ms`:
    the longest wait of an answer for its commit."""

    timeout_ms_max: int = 900_000
    expiration_ms: int = 604_800_000
    expiration_check_ms: int = 3_600_000
    commit_timeout_ms: int = 5_000

    @staticmethod
    def of(configs: Mapping[str, str]) -> TransactionSettings:
        """Read the settings from a broker's validated configs."""
        return TransactionSettings(
            commit_timeout_ms=own_integer(configs, "offsets.commit.timeout.ms")
        )
