"""Classic groups, whose members assign the partitions themselves: join, sync, heartbeat, leave."""
