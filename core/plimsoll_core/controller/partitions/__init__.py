"""The controller's decisions about leaders and in-sync replicas: AlterPartition, elections, unclean
recovery."""
