"""The controller's decisions about moves of replicas: reassignments and rebalances."""
