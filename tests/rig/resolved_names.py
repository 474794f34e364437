"""Names of hosts that only a test knows, for stock clients: nothing else of them is changed.

A JVM has a file of hosts. librdkafka asks libc, so a library before it answers for these names.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

DOMAIN = "kafka.test"
_SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
typedef int (*lookup)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
int getaddrinfo(const char *name, const char *port, const struct addrinfo *hints,
                struct addrinfo **found) {
    size_t size = name ? strlen(name) : 0, tail = strlen("kafka.test");
    if (size >= tail && !strcmp(name + size - tail, "kafka.test")) name = "127.0.0.1";
    return ((lookup)dlsym(RTLD_NEXT, "getaddrinfo"))(name, port, hints, found);
}
"""


def hosts_file(directory: Path, *names: str) -> str:
    """A JVM option: these names are 127.0.0.1, and there are no others."""
    path = directory / "hosts"
    path.write_text("".join(f"127.0.0.1 {name}\n" for name in ("localhost", *names)))
    return f"-Djdk.net.hosts.file={path}"


def preloaded(directory: Path) -> dict[str, str] | None:
    """The environment of a process whose libc knows all names below DOMAIN; None: there is no C
    compiler.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    source, library = directory / "names.c", directory / "names.so"
    source.write_text(_SOURCE)
    command = [compiler, "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return {"LD_PRELOAD": str(library)}
