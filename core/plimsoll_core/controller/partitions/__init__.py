"""Leaders and in-sync replicas: AlterPartition, elections, unclean recovery."""
