"""Virtual time: the event loop, processes on it, and what replaces clocks and randomness."""
