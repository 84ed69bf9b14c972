"""Groups with members that share out partitions themselves: join, sync, heartbeat, leave."""
