"""Schema distribution against registries that users run: `make schemas-peers`."""
