"""One broker process: its life, how it is put together, its heartbeats and metrics."""
