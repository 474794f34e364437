"""Whether a file is still the one that was read."""

from __future__ import annotations

from pathlib import Path


def stat_of(path: Path) -> object:
    """What is known of the file behind symbolic links: Kubernetes changes the files of a secret by
    one of these.
    """
    try:
        found = path.stat()
    except OSError as error:
        return error.errno
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev
