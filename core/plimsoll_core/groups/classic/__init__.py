"""Groups whose members share out partitions themselves: join, sync, heartbeat, leave."""
