"""Classic groups: their members assign the partitions themselves. Join, sync, heartbeat, leave."""
