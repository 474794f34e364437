"""What all sections of keyway.yaml have in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Port = Annotated[int, Field(ge=1, le=65_535)]


Millis = Annotated[int, Field(ge=1)]


def only_one(option: str, value: object, file: object) -> None:
    """`file`: what is given as the option's name with `_file`. Raises ValueError if both are."""
    if value is not None and file is not None:
        raise ValueError(f"either {option} or {option}_file, not both")


class Section(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", regex_engine="python-re", use_attribute_docstrings=True
    )
