"""The options of the tests' Spark JVMs: a quick start instead of the highest speed.

A session with three small queries takes 40 s of CPU on a busy machine with Java's own options, 19 s
with the first compiler alone, and 10 s with the archive of classes (spark/class_archive.py) too.
"""

from __future__ import annotations

from collections.abc import MutableMapping

QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def start_quickly(environment: MutableMapping[str, str]) -> None:
    """spark-submit, which also starts pyspark's JVM, gives these options to every driver."""
    environment.setdefault("SPARK_SUBMIT_OPTS", " ".join(QUICK))
    environment.setdefault("SPARK_LAUNCHER_OPTS", " ".join(QUICK))
