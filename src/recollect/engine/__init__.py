"""Who runs an operation: an engine, in one transaction. It knows SQL by name and no operation."""
