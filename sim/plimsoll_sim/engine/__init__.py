"""Virtual time: the event loop, the processes on it, and replacements of clocks and randomness."""
