"""The cluster's state for people and monitoring: status, Events, metrics.  Never read back."""
