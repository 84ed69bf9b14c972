"""Topics: declared, placed, and deleted on proof only."""
