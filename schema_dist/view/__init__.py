"""A schema registry that is a view: reads from the cluster's `_schemas`, writes to the primary."""
