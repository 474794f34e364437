"""The jars of Kafka Streams' demos, Connect and MirrorMaker 2."""

from __future__ import annotations

from pathlib import Path

from gateway.embedded.jars import build_dir, fetched

_MODULES = ("kafka-streams-examples", "connect-runtime", "connect-file", "connect-mirror")


def ecosystem_libs(version: str) -> Path:
    """The folder with the jars of one version of Kafka, fetched on first use. Raises SetupError."""
    rows = "".join(
        f'<dependency org="org.apache.kafka" name="{name}" rev="{version}" conf="default"/>'
        for name in _MODULES
    )
    ivy = (
        '<ivy-module version="2.0"><info organisation="keyway" module="ecosystem-libs"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{rows}</dependencies></ivy-module>"
    )
    return fetched(
        build_dir() / f"ecosystem-{version}" / "libs",
        ivy,
        first=f"connect-file-{version}.jar",
        failed="the jars of Streams and Connect could not be fetched (see {log})",
    )
