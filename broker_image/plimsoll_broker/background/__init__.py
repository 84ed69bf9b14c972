"""Work that does not belong in one turn of the event loop."""
