"""What this broker tells the controller of its replicas."""
