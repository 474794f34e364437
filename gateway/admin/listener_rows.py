"""Rows of REST about the listeners of a node."""

from __future__ import annotations

from gateway.admin.rows import Row

ACCEPTED = "accepted"  # the outcome of a login; all others are refusals


class LoginRow(Row):
    """Logins that the node judged. `outcome`: accepted, or why not. `mechanism` other: the listener
    does not offer it.
    """

    mechanism: str
    outcome: str
    count: int


class ListenerRow(Row):
    """`authenticated_by`: `gateway` with the listener's `mechanisms`, or `upstream`, where the SASL
    exchange of clients passes through; then `logins` and `sessions_ended` are empty. `expires_ms`:
    the first certificate to end; null: no TLS. `problems`: files of certificates, users, identities
    or keys that cannot be used as they are now; what was read before is in use.
    """

    listener: str
    bootstrap: str | None
    connections: int
    tls: bool
    expires_ms: int | None
    handshakes: int
    handshakes_failed: int
    authenticated_by: str
    mechanisms: list[str]
    logins: list[LoginRow]
    sessions_ended: dict[str, int]  # by reason
    problems: list[str]


class ListenerList(Row):
    """The listener that REST names addresses of comes first."""

    listeners: list[ListenerRow]
