"""Schema distribution against registries that users run: `make campaign NAME=schemas-peers`."""
