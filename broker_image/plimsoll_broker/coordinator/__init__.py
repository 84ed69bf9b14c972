"""Coordinators of groups: shards over the partitions of `__consumer_offsets` that are led here."""
