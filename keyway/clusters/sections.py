"""What the sections of the clusters' YAML share: strictness, units, names, passwords."""

from __future__ import annotations

import os
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
    """A name and its password, in the file or in an environment variable."""

    username: str
    """The name."""
    password: SecretStr | None = None
    """The password; never logged. Either this or `password_env`."""
    password_env: str | None = None
    """The environment variable that holds the password."""

    @model_validator(mode="after")
    def _one_of_two(self) -> Password:
        if (self.password is None) == (self.password_env is None):
            raise ValueError("either password or password_env is needed")
        return self

    def secret(self) -> str:
        """Raises ConfigError if the environment variable is not set."""
        if self.password is not None:
            return self.password.get_secret_value()
        assert self.password_env is not None
        return from_environment(self.password_env)


def from_environment(name: str) -> str:
    """Raises ConfigError if it is not set."""
    value = os.environ.get(name)
    if not value:
        raise ConfigError(f"the environment variable {name} is not set")
    return value
