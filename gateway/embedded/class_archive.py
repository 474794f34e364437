"""An archive of the classes that a broker loads, so that the JVMs of Kafka start in half the time.

Java maps the archive instead of reading, verifying and linking some thousand classes anew (class
data sharing, JEP 350). `make setup` makes it once; without it everything works, only slower. Java
itself checks that an archive fits its version and the class path, and passes over one that does
not.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from gateway.embedded.jars import archive_file
from gateway.embedded.kafka import QUICK_JVM, KafkaCluster
from gateway.embedded.process import SetupError

WRITING_S_MAX = 120.0  # from SIGTERM until the archive is whole; 3 s on an idle machine


def make_archive() -> None:
    """Starts a broker, stops it, and keeps the classes it had. Raises SetupError."""
    archive = archive_file()
    archive.parent.mkdir(parents=True, exist_ok=True)
    part = archive.with_suffix(".part")
    for old in (archive, part):  # Java adds nothing to an archive it starts from.
        old.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="keyway-archive-") as directory:
        jvm = (*QUICK_JVM, f"-XX:ArchiveClassesAtExit={part}")
        with KafkaCluster(1, jvm=jvm, directory=Path(directory)) as cluster:
            broker = cluster.brokers[0].child
            assert broker is not None
            broker.terminate()
            with suppress(subprocess.TimeoutExpired):
                broker.wait(WRITING_S_MAX)
    if not part.exists():
        raise SetupError("Java wrote no archive of classes: Kafka starts slowly")
    part.replace(archive)


def main() -> int:
    """`python -m gateway.embedded.class_archive`: makes it anew. Its absence costs only time, so
    that the exit status is 0 either way.
    """
    try:
        make_archive()
    except SetupError as error:
        sys.stderr.write(f"keyway: {error}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
