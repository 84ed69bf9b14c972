"""What brokers, clients and the operator ask of the controller, and what it answers."""
