"""`python -m tests.rig.schema_registry PORT`: serves the registry on loopback."""

from __future__ import annotations

import sys

import uvicorn

from tests.rig.schema_registry.app import App

uvicorn.run(App(), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", loop="uvloop")
