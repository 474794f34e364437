"""The tests' own Java programs: compiled once, run with the class path of the Kafka jars."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.embedded.jars import build_dir, kafka_libs, shared_classes
from tests.rig.patience import patient_s

SOURCES = Path(__file__).parent / "java"
COMPILE_SECONDS_MAX = 120

# One JVM must not take both cores of a small machine for its compiler and collector threads.
# What they print is read line by line: warnings of the JVM itself go to the standard error.
JVM_OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xmx512m",
    "-Xshare:auto",
    "-Xlog:disable",
    "-Xlog:all=warning:stderr",
)


@dataclass(frozen=True, slots=True)
class JavaPrograms:
    """Where the compiled programs and the Kafka jars are."""

    classes: Path
    libs: Path

    def command(
        self,
        main_class: str,
        *arguments: str,
        options: Sequence[str] = JVM_OPTIONS,
    ) -> list[str]:
        """The command line of one of our programs, or of a main class in the jars."""
        class_path = os.pathsep.join((str(self.libs / "*"), str(self.classes)))
        return ["java", *shared_classes(), *options, "-cp", class_path, main_class, *arguments]

    def run(self, main_class: str, *arguments: str, seconds_max: float, stdin: str = "") -> str:
        """Runs a main class to its end and returns its standard output.

        Raises AssertionError with both outputs if it fails, subprocess.TimeoutExpired if it hangs.
        """
        finished = subprocess.run(
            self.command(main_class, *arguments),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=patient_s(seconds_max),
            check=False,
        )
        assert finished.returncode == 0, (
            f"{main_class} ended with {finished.returncode}:\n{finished.stdout}\n{finished.stderr}"
        )
        return finished.stdout

    def console_producer(
        self, front: str, topic: str, lines: str, *options: str, seconds_max: float
    ) -> None:
        """Kafka's own, a record for each line."""
        self.run(
            "org.apache.kafka.tools.ConsoleProducer",
            *("--bootstrap-server", front, "--topic", topic),
            *("--request-timeout-ms", "60000"),  # of 1.5 s it sends again on a slow machine
            *options,
            seconds_max=seconds_max,
            stdin=lines,
        )


def compile_programs(folder: Path = SOURCES, libs: Path | None = None) -> JavaPrograms:
    """Every program in `folder`, compiled against `libs` (None: Kafka's). The classes are kept in
    `build`, so that one process compiles for all. Raises AssertionError with javac's own words.
    """
    libs = libs or kafka_libs()
    javac = shutil.which("javac")
    assert javac is not None, (
        "javac not found: install a JDK >= 17 (Debian: openjdk-17-jdk-headless)"
    )
    sources = sorted(folder.glob("*.java"))
    contents = b"".join([str(libs).encode(), *(source.read_bytes() for source in sources)])
    classes = build_dir() / "java" / hashlib.sha256(contents).hexdigest()[:16]
    classes.parent.mkdir(parents=True, exist_ok=True)
    with classes.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not classes.exists():
            part = classes.with_suffix(".part")
            finished = subprocess.run(
                [javac, "-nowarn", "-d", str(part), "-cp", str(libs / "*"), *map(str, sources)],
                capture_output=True,
                text=True,
                timeout=COMPILE_SECONDS_MAX,
                check=False,
            )
            assert finished.returncode == 0, finished.stderr
            part.rename(classes)
    return JavaPrograms(classes, libs)
