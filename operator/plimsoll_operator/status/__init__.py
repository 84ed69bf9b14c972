"""Status, Events and metrics of a cluster, for people and monitoring. No decision reads them."""
