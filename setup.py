"""Builds the hot modules (gateway/compiled.py lists them) with mypyc, if a C compiler works here.

KEYWAY_COMPILE=0 leaves them interpreted: an editable install would put them into the source tree,
where they go stale with the next edit; there `make compile` builds them instead.
"""

import os
import runpy
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from setuptools import setup

ROOT = Path(__file__).resolve().parent
# The commands that need extension modules. An sdist and metadata do not.
BUILDS = {"bdist_wheel", "build", "build_ext", "develop", "editable_wheel", "install"}


def compiler_fault() -> str | None:
    """Why the C compiler cannot build an extension module here; None if it can."""
    command = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()
    include = sysconfig.get_path("include")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text("#include <Python.h>\nint main(void) { return 0; }\n")
        probe = [*command, "-c", str(source), "-o", f"{folder}/probe.o", f"-I{include}"]
        try:
            run = subprocess.run(probe, capture_output=True, text=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    return None if run.returncode == 0 else run.stderr.strip().splitlines()[0]


def hot_extensions() -> list[Any]:
    if os.environ.get("KEYWAY_COMPILE", "1") == "0":
        return []
    fault = compiler_fault()
    if fault is not None:
        print(  # noqa: T201
            f"keyway: no working C compiler ({fault}): the hot modules run interpreted,"
            " slower, with the same answers (Debian: apt install gcc python3-dev)",
            file=sys.stderr,
        )
        return []
    from mypyc.build import mypycify

    compiled = runpy.run_path(str(ROOT / "gateway" / "compiled.py"))
    os.chdir(ROOT)
    # Two groups: calls between the modules of each, and from one to the other, become C calls. Each
    # group's library lies in a package, since an editable install puts the packages on the path and
    # nothing beside them.
    hot, shells = compiled["hot_sources"](ROOT), compiled["shell_sources"](ROOT)
    groups = [(hot, "dispatcher.hot"), (shells, "gateway.shells")]
    extensions = list(mypycify([*hot, *shells], opt_level="3", separate=groups))
    for extension in extensions:
        extension.extra_compile_args.append("-g0")  # Names for a debugger take a third of the time.
        if extension.name.startswith("gateway.shells"):
            extension.extra_compile_args.append("-O1")  # No loops: as fast, in a third of the time.
    return extensions


setup(ext_modules=hot_extensions() if BUILDS & set(sys.argv) else [])
