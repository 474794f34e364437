"""YAML files of settings, read the same way for a gateway and for the clusters: every fault is one
line with the file, the place and the reason, and never a value, which may be a secret.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError


class ConfigError(Exception):
    """One line with the file, the field and the reason; the CLI prints it and exits with 2."""


def read_mapping(path: Path) -> dict[str, Any]:
    """The sections of the file. One whose every line is commented out is none. Raises
    ConfigError.
    """
    try:
        raw: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 at byte {error.start}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{path}: {_yaml_fault(error)}") from None
    raw = {} if raw is None else raw
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: a mapping is expected at the top")
    return {name: value for name, value in raw.items() if value is not None}


def _yaml_fault(error: Exception) -> str:
    # The place alone: PyYAML's own text quotes the file, and the line may hold a password.
    mark = getattr(error, "problem_mark", None)
    where = "" if mark is None else f" at line {mark.line + 1}, column {mark.column + 1}"
    return f"not valid YAML{where}"


_WORDS: Final = {  # pydantic's speak of Python
    "extra_forbidden": "unknown field",
    "missing": "is missing",
    "tuple_type": "a list is expected",
    "model_type": "an object is expected",
    "string_type": "text is expected",
    "string_too_short": "must not be empty",
    "too_short": "has too few entries",
}


def first_fault(error: ValidationError, *, unnamed: Collection[str] = ()) -> str:
    """One line with a field and its fault. Without its value, which pydantic's own text has: it may
    be a secret. `unnamed`: parts of a field's place that no file has.
    """
    faults = error.errors(include_input=False, include_url=False)
    # A name that is mistyped is two faults: the field is missing, and another one is not known. The
    # second one is the cause.
    fault = min(faults, key=lambda fault: fault["type"] == "missing")
    where = ".".join(str(part) for part in fault["loc"] if part not in unnamed)
    what = _WORDS.get(fault["type"], fault["msg"].removeprefix("Value error, "))
    if fault["type"] == "too_short" and fault.get("ctx", {}).get("min_length") == 1:
        what = "must not be empty"
    more = error.error_count() - 1
    return (f"{where}: " if where else "") + what + (f" (and {more} more)" if more else "")
