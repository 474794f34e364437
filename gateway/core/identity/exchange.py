"""One login after the other on one connection: SaslHandshake, then one or two SaslAuthenticate.

    state        event       next
    RESTING      handshake   FIRST, or RESTING if the mechanism is not offered
    FIRST        token       LAST (SCRAM), CHECKING (PLAIN, OAUTHBEARER)
    LAST         token       RESTING: SCRAM is proven or denied
    CHECKING     checked     RESTING

Any other event is denied. A later login on a connection (KIP-368) has to be of the same principal
with the same mechanism.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, assert_never

from gateway.core.identity.credentials import HASHES, ScramCredential, Users
from gateway.core.identity.sasl_server import (
    BadMessage,
    ScramServer,
    bearer_login,
    plain_login,
    scram_first,
)

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"


class State(Enum):
    RESTING = "resting"
    FIRST = "first"
    LAST = "last"
    CHECKING = "checking"


class Denial(Enum):
    """Why a login failed, as logs and metrics name it. A client is not told which of them."""

    CREDENTIALS = "wrong_credentials"  # also of a name that is not known
    TOKEN = "token"  # noqa: S105
    MALFORMED = "malformed_message"
    MECHANISM = "mechanism"  # not offered
    OUT_OF_ORDER = "out_of_order"
    OTHER_MECHANISM = "other_mechanism"  # in a later login
    OTHER_PRINCIPAL = "other_principal"  # in a later login
    NO_IDENTITY = "no_identity"  # no rule gives the principal an identity at upstream
    UPSTREAM = "upstream"  # upstream refused the identity
    LIMIT = "limit"  # of connections, for the principal


@dataclass(frozen=True, slots=True)
class Challenge:
    data: bytes


@dataclass(frozen=True, slots=True)
class CheckPassword:
    """To hash it takes milliseconds or more, so it is the shell's. `known`: else no password is
    right.
    """

    name: str
    password: bytes = field(repr=False)
    credential: ScramCredential
    known: bool

    def right(self) -> bool:
        return self.credential.fits(self.password) and self.known


@dataclass(frozen=True, slots=True)
class CheckToken:
    """The token's principal has to be `authorization_id`, if that is given."""

    authorization_id: str | None
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Proven:
    principal: str
    answer: bytes  # the last message to the client
    credential: ScramCredential | None = None  # that the client has proven to know; None: a token


@dataclass(frozen=True, slots=True)
class Denied:
    why: Denial
    detail: str = ""  # for the log


Outcome = Challenge | CheckPassword | CheckToken | Proven | Denied


class Exchange:
    def __init__(self, mechanisms: Sequence[str]) -> None:
        self.state = State.RESTING
        self.mechanism = ""  # of the login under way, else of the last one
        self._offered = tuple(mechanisms)
        self._principal: str | None = None  # that has logged in
        self._logged_in_with = ""
        self._scram: ScramServer | None = None
        self._credential: ScramCredential | None = None  # of the login under way
        self._known = False

    def handshake(self, mechanism: str) -> Denied | None:
        if self.state is not State.RESTING:
            return self._denied(Denial.OUT_OF_ORDER)
        if mechanism not in self._offered:
            return self._denied(Denial.MECHANISM)
        if self._principal is not None and mechanism != self._logged_in_with:
            return self._denied(Denial.OTHER_MECHANISM)
        self.mechanism, self.state = mechanism, State.FIRST
        return None

    def token(self, message: bytes, users: Users, nonce: str) -> Outcome:
        """`nonce`: fresh and printable, without a comma."""
        try:
            match self.state:
                case State.FIRST:
                    return self._first(message, users, nonce)
                case State.LAST:
                    return self._last(message)
                case State.RESTING | State.CHECKING:
                    return self._denied(Denial.OUT_OF_ORDER)
                case _:
                    assert_never(self.state)
        except BadMessage as bad:
            return self._denied(Denial.MALFORMED, str(bad))

    def checked(self, principal: str | None) -> Proven | Denied:
        """Takes the answer to `CheckPassword` or `CheckToken`. None: the password or token is
        wrong.
        """
        assert self.state is State.CHECKING
        if principal is None:
            why = Denial.TOKEN if self.mechanism == OAUTHBEARER else Denial.CREDENTIALS
            return self._denied(why)
        return self._proven(principal, b"", self._credential)

    def _first(self, message: bytes, users: Users, nonce: str) -> Outcome:
        self.state = State.CHECKING
        if self.mechanism == PLAIN:
            login = plain_login(message)
            credential, known = users.for_password(login.name)
            self._credential = credential
            return CheckPassword(login.name, login.password, credential, known)
        if self.mechanism == OAUTHBEARER:
            bearer = bearer_login(message)
            self._credential = None
            return CheckToken(bearer.authorization_id, bearer.token)
        assert self.mechanism in HASHES
        first = scram_first(message)
        credential, self._known = users.credential(first.name, self.mechanism)
        self._scram = ScramServer(first, credential, nonce)
        self.state = State.LAST
        return Challenge(self._scram.challenge())

    def _last(self, message: bytes) -> Proven | Denied:
        assert self._scram is not None
        scram, self._scram = self._scram, None
        answer = scram.final(message)
        if answer is None or not self._known:
            return self._denied(Denial.CREDENTIALS)
        return self._proven(scram.first.name, answer, scram.credential)

    def _proven(
        self, principal: str, answer: bytes, credential: ScramCredential | None
    ) -> Proven | Denied:
        if self._principal not in (None, principal):
            return self._denied(Denial.OTHER_PRINCIPAL)
        self.state = State.RESTING
        self._principal, self._logged_in_with = principal, self.mechanism
        return Proven(principal, answer, credential)

    def _denied(self, why: Denial, detail: str = "") -> Denied:
        self.state, self._scram = State.RESTING, None
        return Denied(why, detail)
