"""The clusters that records, offsets and schemas travel between: their names and their tree."""
