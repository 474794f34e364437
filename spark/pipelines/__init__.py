"""Pipelines of transforms in YAML: read (`config`), tried on records (`check`), run (`run`)."""
