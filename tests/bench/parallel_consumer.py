"""Confluent's Parallel Consumer: order by key inside the client, on a plain consumer.

Its jars are fetched when a bench wants them, into a folder of their own: they bring the
kafka-clients they were built with.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from gateway.embedded.jars import build_dir, fetched
from tests.rig.clients.java_programs import JavaPrograms, compile_programs

VERSION = "0.5.3.3"

_IVY = f"""<ivy-module version="2.0">
  <info organisation="keyway" module="parallel-consumer-libs"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="io.confluent.parallelconsumer" name="parallel-consumer-core" rev="{VERSION}"
      conf="default"/>
  </dependencies>
</ivy-module>
"""


@cache
def parallel_programs() -> JavaPrograms:
    """The bench's programs for it, compiled. Raises SetupError if the jars cannot be fetched,
    AssertionError with javac's words.
    """
    libs = fetched(
        build_dir() / "parallel-consumer" / "libs",
        _IVY,
        first=f"parallel-consumer-core-{VERSION}.jar",
        failed="Parallel Consumer's jars could not be fetched from Maven Central (see {log})",
    )
    return compile_programs(Path(__file__).parent / "java", libs)
