"""LogBrokers: created and removed with their brokers, and their status."""
