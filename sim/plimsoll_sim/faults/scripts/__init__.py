"""Faults of several steps, one a module, each of which waits for what the step before led to.

What takes three rare faults in the right order, and within a session, never comes by chance.  A
script only picks its brokers and its moments by chance; whatever else goes on may spoil it.  Each
module's `strike` picks, starts the script and returns at once.
"""
