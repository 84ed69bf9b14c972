"""Simulated machines and the processes on them: brokers, operators, clients, and the pods of
brokers.
"""
