"""The clusters that records, offsets and schemas travel between: their names, tree and YAML."""
