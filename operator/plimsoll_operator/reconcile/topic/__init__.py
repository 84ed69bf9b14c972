"""Topics: declares them to the controller, shows their state, and deletes them only after proof."""
