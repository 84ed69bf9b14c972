"""Machines and what runs on them: brokers, operators, clients, and the pods of brokers."""
