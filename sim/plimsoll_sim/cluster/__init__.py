"""A whole simulated cluster: the parts from which it is built, its steps, and faults of whole
machines.
"""
