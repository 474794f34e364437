"""Modules that a Spark worker has imported out of zip files.

A worker gets pyspark, and on a cluster Keyway, as zip files. Before each task pyspark makes Python
look at all its paths anew (`importlib.invalidate_caches`). A zip file is then read once for each of
its packages that something was imported from: 0.1 s of CPU before every task, of which a batch of a
link has one per partition.
"""

from __future__ import annotations

import sys
from zipimport import zipimporter


def not_read_again() -> None:
    """Drops the importers of zip files that Python keeps. The next import makes a new one, out of
    the directories of the zips, which stay in memory. Of a file that is written anew Python does
    not hear; a worker's never are.
    """
    importers = sys.path_importer_cache
    for path in [path for path, found in importers.items() if isinstance(found, zipimporter)]:
        del importers[path]
