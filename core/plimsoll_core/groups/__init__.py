"""Consumer groups: their records, their state, and every decision about them."""
