"""The options of the tests' Spark JVMs: a quick start instead of the highest speed.

A session with three small queries takes 40 s of CPU on a busy machine with Java's own options, 19 s
with the first compiler alone, and 10 s with the classes of an earlier session mapped from an
archive (JEP 350), which tests.rig.spark_archive writes.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path

from gateway.embedded.jars import build_dir, classes_of

QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def archive_file() -> Path:
    return build_dir() / "spark" / "classes.jsa"


def start_quickly(environment: MutableMapping[str, str]) -> None:
    """spark-submit, which also starts pyspark's JVM, gives these options to every driver."""
    options = (*QUICK, *classes_of(archive_file()))
    environment.setdefault("SPARK_SUBMIT_OPTS", " ".join(options))
    environment.setdefault("SPARK_LAUNCHER_OPTS", " ".join(QUICK))
