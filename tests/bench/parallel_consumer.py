"""Confluent's Parallel Consumer: order by key inside the client, on a plain consumer.

Its jars are fetched when a bench wants them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tests.rig.clients.java_jars import jars
from tests.rig.clients.java_programs import JavaPrograms, compile_programs

VERSION = "0.5.3.3"


@cache
def parallel_programs() -> JavaPrograms:
    """The bench's programs for it, compiled. Raises SetupError if the jars cannot be fetched,
    AssertionError with javac's words.
    """
    libs = jars(
        "parallel-consumer",
        f"io.confluent.parallelconsumer:parallel-consumer-core:{VERSION}",
    )
    return compile_programs(Path(__file__).parent / "java", libs)
