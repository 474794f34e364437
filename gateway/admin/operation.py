"""One route of REST, as the table of api.py has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from gateway.config.admin import Role
from gateway.handlers.limits import GROUP_ID_CHARS_MAX

JSON, EVENTS, METRICS_TEXT = "application/json", "text/event-stream", "text/plain"


@dataclass(frozen=True, slots=True)
class Parameter:
    """`schema`: JSON schema."""

    name: str
    about: str
    schema: Mapping[str, Any]


GROUP = Parameter(
    "group",
    "The name of a group.",
    {"type": "string", "minLength": 1, "maxLength": GROUP_ID_CHARS_MAX},
)


@dataclass(frozen=True, slots=True)
class Operation:
    """`answer` None: text of type `media`. `also`: another status with the same answer. `role`: the
    least that may use it; None: open to all. `action`: its name in the audit, if it changes
    something or shows a value. `whole`: it speaks of all groups, so a token for some of them may
    not use it. `values`: it is for tokens that may see values.
    """

    method: str
    path: str
    summary: str
    answer: type[BaseModel] | None
    body: type[BaseModel] | None = None
    query: tuple[Parameter, ...] = ()  # required
    optional: tuple[Parameter, ...] = ()
    also: int | None = None
    role: Role | None = Role.VIEWER
    action: str | None = None
    whole: bool = False
    values: bool = False
    media: str = JSON

    @property
    def in_path(self) -> tuple[Parameter, ...]:
        return tuple(parameter for parameter in (GROUP,) if f"{{{parameter.name}}}" in self.path)

    @property
    def of_group(self) -> bool:
        """Whether the operation names a group in its path or its query."""
        return GROUP in (*self.in_path, *self.query)

    @property
    def any_query(self) -> bool:
        """Metrics and health: scrapers and load balancers add parameters of their own."""
        return not self.path.startswith("/v1/")
