"""What became of leaders and ISRs, kept for weeks: an archive beside the metadata log."""
