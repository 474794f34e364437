"""Jars beside Kafka's own, each set in a folder of its own: they bring the versions of
kafka-clients and the like that they were built with.
"""

from __future__ import annotations

from pathlib import Path

from gateway.embedded.jars import build_dir, fetched


def jars(folder: str, *modules: str) -> Path:
    """The folder below `build` with the jars of these modules (organisation:name:version) and what
    they depend on, fetched on first use. Raises SetupError.
    """
    rows = "".join(
        '<dependency org="{}" name="{}" rev="{}" conf="default"/>'.format(*module.split(":"))
        for module in modules
    )
    ivy = (
        f'<ivy-module version="2.0"><info organisation="keyway" module="{folder}-libs"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{rows}</dependencies></ivy-module>"
    )
    _, name, version = modules[0].split(":")
    return fetched(
        build_dir() / folder / "libs",
        ivy,
        first=f"{name}-{version}.jar",
        failed=f"the jars of {name} could not be fetched from Maven Central (see {{log}})",
    )
