"""The section `limits` of keyway.yaml: what clients may take."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from gateway.config.section import Section
from gateway.core.client_limits.rules import Per, Rule

LIMITS = ("connections", "requests_per_s", "bytes_in_per_s", "bytes_out_per_s", "share_sessions")

_Requests = Annotated[
    int, Field(ge=1, le=1_000_000_000, json_schema_extra={"unit": "requests a second"})
]
_Bytes = Annotated[
    int, Field(ge=1, le=1_000_000_000_000, json_schema_extra={"unit": "bytes a second"})
]
_Connections = Annotated[int, Field(ge=0, le=1_000_000, json_schema_extra={"unit": "connections"})]
_Sessions = Annotated[int, Field(ge=0, le=1_000_000, json_schema_extra={"unit": "sessions"})]


def _without_type(principal: str) -> str:
    """ACLs write `User:alice`."""
    return principal.removeprefix("User:") or "*"


class LimitSection(Section):
    """Limits of the clients that match all of `principal`, `client_id` and `address`; the first
    entry that matches a client wins, and a client that none matches has no limits. They hold on
    each node (worker) of its own.
    """

    name: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9._@-]{1,64}$",
            json_schema_extra={"limits": "1 to 64 letters, digits or `._@-`"},
        ),
    ]
    """The name of the rule in REST and metrics."""
    principal: Annotated[str, Field(min_length=1), AfterValidator(_without_type)] = "*"
    """A glob (`*`, `?`, `[seq]`) for the name that a client has authenticated with. A client
    without one is `ANONYMOUS`.
    """
    client_id: Annotated[str, Field(min_length=1)] = "*"
    """A glob for the client id of a connection's first request: the client's own word."""
    address: Annotated[str, Field(min_length=1)] = "*"
    """A glob for the address that a client connects from."""
    per: Per = Per.RULE
    """Who shares the limits: all clients of the rule, or each principal, client id or address has
    them for itself.
    """
    connections: _Connections | None = None
    """Connections at a time; one more is closed. None: no limit, here and in all options below."""
    requests_per_s: _Requests | None = None
    """Requests a second."""
    bytes_in_per_s: _Bytes | None = None
    """Bytes of requests a second."""
    bytes_out_per_s: _Bytes | None = None
    """Bytes of responses a second."""
    share_sessions: _Sessions | None = None
    """Open share sessions; one more is answered with SHARE_SESSION_LIMIT_REACHED."""
    burst_s: Annotated[int, Field(ge=1, le=60, json_schema_extra={"unit": "seconds"})] = 1
    """After a pause, the requests and bytes of this many seconds may come at once."""

    @model_validator(mode="after")
    def _limits_something(self) -> LimitSection:
        if all(getattr(self, limit) is None for limit in LIMITS):
            raise ValueError(f"a rule needs one of {', '.join(LIMITS)}")
        return self

    def rule(self) -> Rule:
        return Rule(**self.model_dump())


def no_name_twice(sections: tuple[LimitSection, ...]) -> tuple[LimitSection, ...]:
    names = [section.name for section in sections]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"two rules have the name {twice[0]}")
    return sections
