"""The list of compiled modules, for setup.py, the Makefile and `keyway --version`.

They are typed Python. Without a C compiler they run the same, slower (ARCHITECTURE,
Decisions). This file imports nothing of Keyway: setup.py runs it before anything is installed, and
`python gateway/compiled.py` prints the list.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

HOT_MODULES = (
    "gateway/core/wire/*.py",
    "gateway/core/forwarding/api_counts.py",
    "gateway/core/times.py",
    "gateway/core/client_limits/account.py",
    "gateway/core/client_limits/bucket.py",
    "gateway/core/client_limits/throttle_field.py",
    "gateway/core/forwarding/effects.py",
    "gateway/core/share/answers.py",
    "gateway/core/repartition/partitioners.py",
    "gateway/core/forwarding/produce_head.py",
    "gateway/core/forwarding/requests.py",
    "gateway/core/forwarding/responses.py",
    "gateway/core/forwarding/connection_state.py",
    "gateway/core/forwarding/node_endpoints.py",
    "gateway/core/forwarding/metadata_answer.py",
    "gateway/core/forwarding/partition_walk.py",
    "gateway/core/forwarding/topic_bytes.py",
    "gateway/core/forwarding/sasl_watch.py",
    "dispatcher/core/**/*.py",
    "dispatcher/store/claims.py",
    "dispatcher/store/operations.py",
    "dispatcher/store/script_calls.py",
    "keyway/commit_metadata/core/*.py",
)
# What each share fetch goes through, from its handler to the store and back.
SHELL_MODULES = (
    "gateway/core/forwarding/held_bytes.py",
    "gateway/core/reading/cache.py",
    "gateway/core/share/sessions.py",
    "gateway/handlers/share_fetch.py",
    "gateway/handlers/share_plan.py",
    "gateway/handlers/share_requests.py",
    "gateway/listen/bounds.py",
    "gateway/reading/read_records.py",
    "gateway/windows/persisting.py",
    "gateway/windows/record_flow.py",
    "gateway/windows/record_outcomes.py",
    "gateway/windows/store_availability.py",
    "gateway/windows/tickets.py",
    "gateway/windows/window.py",
)
# Plain data that loops only at import, or code that mypyc cannot take: compiling gains nothing.
LEFT_OUT: tuple[str, ...] = ()


def hot_sources(root: Path) -> list[str]:
    """The cores to compile, relative to the checkout `root`, sorted. Folders' __init__.py never."""
    return _sources(root, HOT_MODULES)


def shell_sources(root: Path) -> list[str]:
    """The same of the shells."""
    return _sources(root, SHELL_MODULES)


def _sources(root: Path, patterns: tuple[str, ...]) -> list[str]:
    found = {
        str(path.relative_to(root))
        for pattern in patterns
        for path in root.glob(pattern)
        if path.name != "__init__.py"
    }
    return sorted(found - set(LEFT_OUT))


def compiled_modules() -> dict[str, bool]:
    """For each hot module by its dotted name: would an import take the compiled one?"""
    root = Path(__file__).resolve().parent.parent
    answer = {}
    for source in (*hot_sources(root), *shell_sources(root)):
        name = source.removesuffix(".py").replace("/", ".")
        spec = importlib.util.find_spec(name)
        origin = spec.origin if spec is not None else None
        answer[name] = origin is not None and origin.endswith(tuple(EXTENSION_SUFFIXES))
    return answer


def describe() -> str:
    """`compiled`, `interpreted`, or the missing modules, for people."""
    modules = compiled_modules()
    missing = [name for name, is_compiled in modules.items() if not is_compiled]
    if not missing:
        return "compiled"
    if len(missing) == len(modules):
        return "interpreted (no compiled modules: slower, same answers)"
    return f"partly compiled (interpreted: {', '.join(missing)})"


def version_line() -> str:
    """The output of `keyway --version`."""
    try:
        version = importlib.metadata.version("keyway-gateway")
    except importlib.metadata.PackageNotFoundError:
        version = "(not installed)"
    return f"keyway {version}, {describe()}, Python {platform.python_version()}"


if __name__ == "__main__":
    checkout = Path(__file__).resolve().parent.parent
    print(*hot_sources(checkout), *shell_sources(checkout))  # noqa: T201
