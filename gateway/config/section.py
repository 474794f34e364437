"""What all sections of keyway.yaml have in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Port = Annotated[int, Field(ge=1, le=65_535)]


Millis = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", regex_engine="python-re", use_attribute_docstrings=True
    )
