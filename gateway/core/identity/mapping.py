"""From the principal of a client to its identity at upstream: the first rule that matches.

As Kafka's `ssl.principal.mapping.rules`: a pattern has to match the whole principal, and `$1` is
its first group. A principal that no rule matches has no identity, and its client is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gateway.core.identity.limits import PRINCIPAL_CHARS_MAX

GROUP: Final = re.compile(r"\$([0-9]+)")


@dataclass(frozen=True, slots=True)
class Rule:
    """Either `principal` or `pattern`. `identity` is None for a rule that refuses."""

    principal: str | None
    pattern: re.Pattern[str] | None
    identity: str | None
    case: str | None = None  # "lower" or "upper": of the identity

    def of(self, principal: str) -> tuple[bool, str | None]:
        """Whether it matches, and the identity."""
        if self.pattern is None:
            return principal == self.principal, self.identity
        found = self.pattern.fullmatch(principal)
        if found is None:
            return False, None
        return True, self._with_groups(found)

    def _with_groups(self, found: re.Match[str]) -> str | None:
        if self.identity is None:
            return None
        name = GROUP.sub(lambda group: found[int(group[1])] or "", self.identity)
        if self.case is None:
            return name
        return name.lower() if self.case == "lower" else name.upper()


def identity_of(principal: str, rules: Sequence[Rule]) -> str | None:
    """None: the client is refused."""
    if len(principal) > PRINCIPAL_CHARS_MAX:
        return None
    for rule in rules:
        matches, identity = rule.of(principal)
        if matches:
            return identity
    return None
