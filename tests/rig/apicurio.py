"""Apicurio Registry 3.0.9 from Maven Central, in memory, with Confluent's REST interface (ccompat).

It takes explicit ids and ignores them, has no `/schemas` list, and answers 204 to a change of mode
that it does not make. `python -m tests.rig.apicurio` fetches it.
"""

from __future__ import annotations

import fcntl
import os
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.embedded.jars import build_dir, fetched, java
from gateway.embedded.process import SetupError, free_ports, start_child, stop_child
from tests.rig.patience import wait_until
from tests.rig.schema_registry.site import answers

VERSION = "3.0.9"  # the last one for Java 17
READY_S_MAX = 90.0
_ARCHIVE = f"apicurio-registry-app-{VERSION}.tar.gz"
_RUNNER = f"apicurio-registry-app-{VERSION}-runner.jar"
_IVY = f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="keyway" module="apicurio"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="io.apicurio" name="apicurio-registry-app" rev="{VERSION}" conf="default">
      <artifact name="apicurio-registry-app" type="tar.gz" ext="tar.gz" m:classifier="all"/>
    </dependency>
  </dependencies>
</ivy-module>
"""


def apicurio() -> Path:
    """The folder with the unpacked registry, fetched on first use. Raises SetupError."""
    archive = fetched(
        build_dir() / "apicurio" / "archive",
        _IVY,
        first=_ARCHIVE,
        failed="Apicurio could not be fetched from Maven Central (see {log}): check the network",
        poms=False,
    )
    folder = archive.parent / VERSION
    with (archive.parent / "unpack.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / _RUNNER).exists():
            with tarfile.open(archive / _ARCHIVE) as packed:
                packed.extractall(folder, filter="data")
    return folder


@contextmanager
def served_apicurio(log: Path) -> Iterator[str]:
    """A fresh registry as a process; the URL of its Confluent-compatible interface."""
    port = free_ports(1)
    env = os.environ | {"QUARKUS_HTTP_HOST": "127.0.0.1", "QUARKUS_HTTP_PORT": str(port)}
    command = [java(), "-Xmx384m", "-XX:TieredStopAtLevel=1", "-jar", str(apicurio() / _RUNNER)]
    child = start_child(command, log=log, env=env)
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    try:
        wait_until(lambda: answers(url), what="Apicurio", deadline_s=READY_S_MAX)
        yield url
    finally:
        stop_child(child)


def main() -> int:
    try:
        apicurio()
    except SetupError as error:
        sys.stderr.write(f"keyway: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
