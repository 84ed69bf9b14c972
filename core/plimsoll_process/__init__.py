"""Parts that real processes need and simulated ones do not: threads and real clocks.

Only entry points (`__main__`, the command line) start the modules of this package. The broker and
the operator themselves never depend on them, so that the simulator runs both unmodified.
"""
