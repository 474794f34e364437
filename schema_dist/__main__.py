"""`python -m schema_dist`: the commands of `keyway schemas`."""

from __future__ import annotations

from schema_dist.cli import app

app()
