"""What to install where a package is missing that only an extra of Keyway brings."""

from __future__ import annotations

# On PyPI the name `keyway` is a stranger's.
DISTRIBUTION_NAME = "keyway-gateway"


def what_to_install(error: ModuleNotFoundError) -> str:
    return f"no module {error.name}: pip install '{DISTRIBUTION_NAME}[distribution]'"
