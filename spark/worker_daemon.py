"""The process that Spark's Python workers of this machine are forked from, as `python -m`.

Spark's own takes pyspark out of zip files, which hold no compiled code: a second of CPU. And what a
task needs each worker would import anew; here it is imported once, before the first fork.
"""

from __future__ import annotations

import sys

sys.path[:] = [path for path in sys.path if "pyspark" not in path or not path.endswith(".zip")]

from pyspark.daemon import manager  # noqa: E402

import spark.links.sealing  # noqa: E402
import spark.streaming.produce  # noqa: E402, F401

if __name__ == "__main__":
    manager()  # type: ignore[no-untyped-call]
