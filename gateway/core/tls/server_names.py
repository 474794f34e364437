"""Names of virtual brokers on one port: the server name that a TLS client asks for (SNI)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

_ID: Final = "{id}"
_ID_DIGITS: Final = "(0|[1-9][0-9]{0,9})"


class UnknownName(Exception):
    """Nothing is behind this name; one line that says so."""


@dataclass(frozen=True, slots=True)
class ServerNames:
    """`broker`: a template with one `{id}`. DNS names have no case."""

    bootstrap: str
    broker: str
    _pattern: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        before, found, after = self.broker.lower().partition(_ID)
        assert found, self.broker
        pattern = re.compile(re.escape(before) + _ID_DIGITS + re.escape(after))
        object.__setattr__(self, "_pattern", pattern)

    def of(self, broker_id: int) -> str:
        return self.broker.replace(_ID, str(broker_id))

    def broker_of(self, name: str | None) -> int | None:
        """The virtual broker that a client means; None: first contact. Raises UnknownName."""
        if name is None:
            raise UnknownName("the client sent no server name (SNI)")
        wanted = name.lower().removesuffix(".")
        if wanted == self.bootstrap.lower():
            return None
        found = self._pattern.fullmatch(wanted)
        if found is None:
            raise UnknownName(f"{name!r} is neither {self.bootstrap} nor a name like {self.broker}")
        return int(found[1])
