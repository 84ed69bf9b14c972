"""An archive of the changes of leaders and ISRs, kept for weeks beside the metadata log."""
