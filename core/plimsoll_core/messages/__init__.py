"""Requests of brokers, clients and the operator to the controller, and its answers."""
