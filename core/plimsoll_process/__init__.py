"""Parts that real processes need and simulated ones do not: threads, real clocks.

Only entry points (`__main__`, the command line) start what is in here; the broker and the operator
themselves never depend on it, so that the simulator runs them unmodified.
"""
