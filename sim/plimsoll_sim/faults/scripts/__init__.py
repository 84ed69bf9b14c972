"""Faults of several steps, one in each module. Each step waits for the effect of the previous one.

A situation that needs three rare faults in the right order, within one session, practically never
arises by chance. A script chooses only its brokers and its times by chance; other faults may spoil
it. Each module's `strike` chooses, starts the script and returns at once.
"""
