"""What the sections of the clusters' YAML share: strictness, units, names, passwords."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from keyway.clusters.core.limits import NAME_CHARS_MAX
from keyway.clusters.yaml_file import ConfigError

Millis = Annotated[int, Field(ge=1)]
Port = Annotated[int, Field(ge=1, le=65_535)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$", max_length=NAME_CHARS_MAX)]


class Section(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", regex_engine="python-re", use_attribute_docstrings=True
    )


class Password(Section):
    """A name and its password: here, in an environment variable, or in a file of its own."""

    username: str
    """The name."""
    password: SecretStr | None = None
    """The password; never logged. One of the three is needed."""
    password_env: str | None = None
    """The environment variable that holds the password."""
    password_file: Path | None = None
    """The file that holds the password alone."""

    @model_validator(mode="after")
    def _one_of_three(self) -> Password:
        if [self.password, self.password_env, self.password_file].count(None) != 2:
            raise ValueError("one of password, password_env, password_file is needed")
        return self

    def secret(self) -> str:
        """Raises ConfigError if its place has none."""
        if self.password_env is not None:
            return from_environment(self.password_env)
        found = given_secret(self.password, self.password_file)
        assert found is not None
        return found


def given_secret(text: SecretStr | None, file: Path | None) -> str | None:
    """Of two options that exclude each other, the second ends with `_file`. Raises ConfigError."""
    if file is not None:
        return from_file(file)
    return None if text is None else text.get_secret_value()


def from_file(path: Path) -> str:
    """Its text without the end of the line. Raises ConfigError."""
    try:
        found = path.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read") from error
    if not found:
        raise ConfigError(f"{path} is empty")
    return found


def from_environment(name: str) -> str:
    """Raises ConfigError if it is not set."""
    value = os.environ.get(name)
    if not value:
        raise ConfigError(f"the environment variable {name} is not set")
    return value
