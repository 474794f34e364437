"""Which seals of copied records are made and believed; keyway/clusters/core/seals.py computes them,
with a package that a gateway alone does not have.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Seals:
    """The first of `secrets` makes new seals, any of them is believed: so a secret can be replaced
    while copies with the old one exist. None at all: seals are checksums.

    `checksums`: with secrets, checksums are believed as well, while the first secret is introduced.
    """

    secrets: tuple[str, ...] = field(default=(), repr=False)
    checksums: bool = False

    @property
    def checksums_believed(self) -> bool:
        return self.checksums or not self.secrets

    def __str__(self) -> str:
        """As docs, `check` and `status` call them."""
        return "HMAC-SHA-256" if self.secrets else "a checksum"


CHECKSUM = Seals()
