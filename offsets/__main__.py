"""`python -m offsets`: the commands of `keyway offsets`."""

from __future__ import annotations

from offsets.cli import app

app()
