"""The login of one client whose listener authenticates it, and its identity at upstream.

No byte of the client goes upstream before upstream has accepted its identity: the upstream
connection is opened and authenticated here, and only then handed over. What the client asks before
its login, ApiVersions, is asked there in the gateway's own words: of the very broker that will
answer the rest.

A later login (KIP-368) has to be of the same principal. The session that the identity has at
upstream is the gateway's to renew.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog

from gateway.core.forwarding.effects import Rewrite
from gateway.core.forwarding.rewrite import OfferedApis
from gateway.core.identity.claims import BadToken
from gateway.core.identity.credentials import ScramCredential
from gateway.core.identity.exchange import (
    Challenge,
    CheckPassword,
    CheckToken,
    Denial,
    Denied,
    Exchange,
    Outcome,
    Proven,
)
from gateway.core.identity.identities import Identity
from gateway.core.tls.peer import TlsFacts
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.codec import decode_request, encode_request, encode_response
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.frames import parse_response_header
from gateway.core.wire.schema import Message
from gateway.listen.authentication import Authentication, SessionEnd
from gateway.listen.client_tasks import ClientTasks
from gateway.listen.limits import RENEWAL_S, UPSTREAM_LOGIN_S
from gateway.upstream.errors import Refused, TimedOut, Unreachable, UpstreamError
from gateway.upstream.frames import Frames, LongAnswers
from gateway.upstream.limits import REAUTHENTICATE_AT
from gateway.upstream.opening import (
    Ask,
    Versions,
    ask,
    authenticate,
    negotiate,
    versions_of,
)
from gateway.upstream.settings import SaslSettings
from keyway.clusters.yaml_file import ConfigError

if TYPE_CHECKING:
    from gateway.listen.answering import Request

log = structlog.get_logger("keyway.login")

_REFUSAL = "Authentication failed"  # whatever the reason: a stranger learns nothing by it
_CLIENT_ID = "keyway"
# Answered here: the first one before the login alone.
LOGIN_APIS: Final = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)


class LoggedIn(Protocol):
    """A connection, as its login sees it."""

    def named(self, principal: str) -> bool:
        """The client is known by name: its limits hold from now on. False: the limits have ended
        the connection.
        """

    def take_over(self, transport: asyncio.Transport) -> None:
        """This is its upstream connection from now on."""

    def end_session(self, why: SessionEnd) -> None: ...
    def abort(self) -> None: ...

    def alone(self) -> AbstractAsyncContextManager[Ask]:
        """Inside the block nothing else goes upstream."""


class LoginRefused(Exception):
    """The login failed, and the client has to be told."""

    def __init__(self, why: Denial, detail: str = "") -> None:
        super().__init__(detail)
        self.why = why


# Long: one login, from the first question to its end; its effects are its methods.
class ClientLogin:
    """`connect`: opens a connection to the client's broker; raises UpstreamError."""

    def __init__(
        self,
        authentication: Authentication,
        connection: LoggedIn,
        offered: OfferedApis,
        connect: Callable[[Frames], Any],
        tasks: ClientTasks,
        *,
        due: Callable[[object], int | None],
    ) -> None:
        self.authentication = authentication
        self.refused = False  # nothing more is answered
        self.identity: Identity | None = None  # None: not logged in
        self.principal: str | None = None
        self._connection = connection
        self._offered = offered
        self._connect = connect
        self._tasks = tasks
        self._due = due
        self._exchange = Exchange(authentication.settings.mechanisms)
        self._frames: Frames | None = None  # upstream, until it is handed over
        self._versions: Versions = {}
        self._credential: ScramCredential | None = None  # that the client has proven to know
        self._signed_by: str | None = None  # the thumbprint of the token's key
        self._expiry: asyncio.TimerHandle | None = None
        self._renewal: asyncio.TimerHandle | None = None
        self._client = ""
        self._closed = False

    async def answer(self, request: Request) -> bytes:
        """The response's body. Raises UpstreamError: the connection cannot go on."""
        header, frame = request.header, request.frame
        key, version = header.api_key, header.api_version
        message = decode_request(key, version, frame, header.body_at)
        if key == ApiKey.API_VERSIONS:
            return await self._api_versions(version, message)
        if not self.authentication.settings.mechanisms:  # as Kafka on a listener without SASL
            return encode_response(key, version, _illegal(key))
        if key == ApiKey.SASL_HANDSHAKE:
            return encode_response(key, version, self._handshake(str(message["Mechanism"])))
        outcome = await self._authenticated(bytes(message["AuthBytes"]))
        return encode_response(key, version, await self._told(outcome))

    # -------------------------------------------------------------------------- by certificate

    def begin(self, client: str, tls: TlsFacts | None) -> bool:
        """Called at the start of the connection. False: the client is refused."""
        self._client = client
        if self.authentication.settings.mechanisms:
            return True
        peer = None if tls is None else tls.peer
        assert tls is not None, "the listener has TLS"
        assert peer is not None, "the listener asks for certificates"
        identity = self.authentication.identities.of(peer.subject)
        if identity is None:
            self._note("CERTIFICATE", Denial.NO_IDENTITY.value, principal=peer.subject)
            return False
        self.identity, self.principal = identity, peer.subject
        self._note("CERTIFICATE", "accepted")
        if tls.peer_expires_s is not None:
            self._expire_in(max(0.0, tls.peer_expires_s - datetime.now(UTC).timestamp()))
        return True

    async def open_upstream(self) -> None:
        """Opens the upstream connection of a client that is known from the start. Raises
        UpstreamError.
        """
        assert self.identity is not None
        await self._open_as(self.identity)

    # -------------------------------------------------------------------------------- the steps

    async def _api_versions(self, version: int, message: Message) -> bytes:
        """Asked in the client's version and with its name: its broker may count such clients."""
        if self._versions:  # once: as Kafka, which waits for a login then
            raise Unreachable("the client asked for ApiVersions again before its login")
        key = ApiKey.API_VERSIONS
        encoded = encode_request(key, version, message)
        try:
            async with asyncio.timeout(UPSTREAM_LOGIN_S):
                frames = await self._opened()
                frame = await frames.ask(key, version, _CLIENT_ID, encoded)
        except TimeoutError:
            raise TimedOut(f"no answer of upstream in {UPSTREAM_LOGIN_S} s") from None
        header = parse_response_header(key, version, frame)
        body = frame[header.body_at :]
        error = int.from_bytes(body[:2], "big", signed=True)
        if error == ErrorCode.NONE:
            self._versions = versions_of(version, frame, "upstream")
        return self._offered.body(Rewrite(key, version, frame), header.body_at)

    def _handshake(self, mechanism: str) -> Message:
        denied = self._exchange.handshake(mechanism)
        code = ErrorCode.NONE
        if denied is not None:
            self.refused = True
            self._note(mechanism, denied.why.value)
            code = (
                ErrorCode.UNSUPPORTED_SASL_MECHANISM
                if denied.why is Denial.MECHANISM
                else ErrorCode.ILLEGAL_SASL_STATE
            )
        mechanisms = list(self.authentication.settings.mechanisms)
        return {"ErrorCode": int(code), "Mechanisms": mechanisms}

    async def _authenticated(self, token: bytes) -> Outcome:
        users = self.authentication.users
        outcome = self._exchange.token(token, users, secrets.token_hex(24))
        match outcome:
            case CheckPassword():
                right = await self.authentication.right(outcome)
                return self._exchange.checked(outcome.name if right else None)
            case CheckToken():
                return await self._token_checked(outcome)
            case _:
                return outcome

    async def _token_checked(self, check: CheckToken) -> Proven | Denied:
        tokens = self.authentication.tokens
        assert tokens is not None, "OAUTHBEARER is offered"
        try:
            bearer, signed_by = await tokens.judged(check.token)
        except BadToken as bad:
            self._exchange.checked(None)
            return Denied(Denial.TOKEN, str(bad))
        if check.authorization_id not in (None, bearer.principal):
            self._exchange.checked(None)
            return Denied(Denial.TOKEN, "the authorization id is another than the principal")
        outcome = self._exchange.checked(bearer.principal)
        if isinstance(outcome, Proven):
            self._signed_by = signed_by
            self._expire_in(max(0.0, tokens.remaining_s(bearer)))
        return outcome

    async def _told(self, outcome: Outcome) -> Message:
        """The answer to SaslAuthenticate."""
        if isinstance(outcome, Challenge):
            return _answer(ErrorCode.NONE, outcome.data)
        try:
            if isinstance(outcome, Denied):
                raise LoginRefused(outcome.why, outcome.detail)
            assert isinstance(outcome, Proven)
            await self._let_in(outcome)
        except LoginRefused as refused:
            return await self._refusal(refused)
        self._note(self._exchange.mechanism, "accepted")
        lifetime_ms = self._session_begins()
        self.judge_again()  # The files may have changed since the first message.
        return _answer(ErrorCode.NONE, outcome.answer, lifetime_ms=lifetime_ms)

    async def _let_in(self, proven: Proven) -> None:
        """Raises LoginRefused, UpstreamError."""
        principal = proven.principal
        identity = self.authentication.identities.of(principal)
        if identity is None or (self.identity is not None and _other(self.identity, identity)):
            raise LoginRefused(Denial.NO_IDENTITY, principal)
        self._credential = proven.credential
        if self.identity is not None:
            return  # Its upstream connection is that of the same identity.
        await self._open_as(identity)
        self.identity, self.principal = identity, principal
        if not self._connection.named(principal):
            raise LoginRefused(Denial.LIMIT)

    async def _refusal(self, refused: LoginRefused) -> Message:
        self.refused = True
        detail = {"detail": str(refused)} if str(refused) else {}
        self._note(self._exchange.mechanism, refused.why.value, **detail)
        await asyncio.sleep(self.authentication.settings.failed_delay_ms / 1000)
        code = ErrorCode.SASL_AUTHENTICATION_FAILED
        if refused.why is Denial.OUT_OF_ORDER:
            code = ErrorCode.ILLEGAL_SASL_STATE
        return _answer(code, b"", message=_REFUSAL)

    def _note(self, mechanism: str, outcome: str, **facts: str) -> None:
        """Logs one line in ten seconds for failures of one kind: any stranger can cause them."""
        offered = self.authentication.settings.mechanisms or ("CERTIFICATE",)
        known = mechanism if mechanism in offered else "other"
        self.authentication.logins[known, outcome] += 1
        listener = self.authentication.listener
        if outcome == "accepted":
            log.debug("login", listener=listener, client=self._client, mechanism=known)
        elif (left_out := self._due((listener, "login", outcome))) is not None:
            log.warning(
                "login_failed",
                listener=listener,
                client=self._client,
                mechanism=known,
                reason=outcome,
                left_out=left_out,
                **facts,
            )

    # --------------------------------------------------------------------------------- upstream

    async def _opened(self) -> Frames:
        """A connection to the client's broker on which nothing has been asked but ApiVersions."""
        frames = self._frames
        if frames is None or not frames.usable:
            self._versions = {}
            frames = self._frames = Frames(LongAnswers())
            await self._connect(frames)
        return frames

    async def _open_as(self, identity: Identity) -> None:
        """Upstream accepts the identity; then the connection is the client's. Raises
        UpstreamError.
        """
        try:
            sasl = self.authentication.at_upstream(identity)
            async with asyncio.timeout(UPSTREAM_LOGIN_S):
                frames = await self._opened()
                if not self._versions:
                    self._versions = await negotiate(frames, "upstream", _CLIENT_ID)

                async def asked(key: int, version: int, body: Message) -> Message:
                    return await ask(frames, "upstream", _CLIENT_ID, key, version, body)

                lifetime_ms = await self._log_in(asked, sasl)
        except TimeoutError:
            self.close()
            raise TimedOut(f"no login at upstream in {UPSTREAM_LOGIN_S} s") from None
        except ConfigError as error:
            raise self._not_usable(identity, str(error)) from error
        except Refused as error:
            raise self._not_usable(identity, str(error)) from error
        self._frames = None
        self._connection.take_over(frames.give_up_transport())
        self._renew_in(lifetime_ms)

    async def _log_in(self, asked: Ask, sasl: SaslSettings) -> int:
        keyring = self.authentication.upstream_keys
        return await authenticate(asked, self._versions, "upstream", sasl, keyring)

    def _not_usable(self, identity: Identity, why: str) -> UpstreamError:
        """An operator's matter. The client is not told that its credentials are wrong: it would
        give up, and not be there when this is mended.
        """
        self.close()
        self._note(self._exchange.mechanism or "CERTIFICATE", Denial.UPSTREAM.value, detail=why)
        return Unreachable(f"upstream did not accept the identity {identity.name!r}")

    def _renew_in(self, lifetime_ms: int) -> None:
        if lifetime_ms > 0:
            self._renewal = asyncio.get_running_loop().call_later(
                lifetime_ms / 1000 * REAUTHENTICATE_AT,
                lambda: self._tasks.start(self._renew, self._connection.abort),
            )

    async def _renew(self) -> None:
        """The session at upstream, with the password as it is now."""
        assert self.identity is not None
        try:
            sasl = self.authentication.at_upstream(self.identity)
            async with asyncio.timeout(RENEWAL_S), self._connection.alone() as asked:
                lifetime_ms = await self._log_in(asked, sasl)
        except (UpstreamError, ConfigError, TimeoutError) as error:
            if not self._closed:
                log.warning("identity_not_renewed", client=self._client, detail=str(error))
                self._end(SessionEnd.UPSTREAM)
            return
        if not self._closed:
            self._renew_in(lifetime_ms)

    # --------------------------------------------------------------------------- the session's end

    def _expire_in(self, seconds: float) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        loop = asyncio.get_running_loop()
        self._expiry = loop.call_later(seconds, self._end, SessionEnd.EXPIRED)

    def _session_begins(self) -> int:
        """Begins a session, and returns how many milliseconds it lasts; 0: it does not end."""
        lifetime_ms = self.authentication.settings.session_lifetime_ms
        left_s = None
        if self.authentication.tokens is not None and self._signed_by is not None:
            assert self._expiry is not None
            left_s = self._expiry.when() - asyncio.get_running_loop().time()
        if lifetime_ms and (left_s is None or left_s * 1000 > lifetime_ms):
            left_s = lifetime_ms / 1000
            self._expire_in(left_s)
        return 0 if left_s is None else max(1, int(left_s * 1000))

    def judge_again(self) -> None:
        """The files have changed: whoever could not log in as before is let go."""
        if self._closed or self.identity is None or self.principal is None:
            return
        identity = self.authentication.identities.of(self.principal)
        if identity is None or _other(self.identity, identity) or not self._still_good():
            self._end(SessionEnd.REVOKED)

    def _still_good(self) -> bool:
        assert self.principal is not None
        users, tokens = self.authentication.users, self.authentication.tokens
        if self._signed_by is not None:
            return tokens is not None and tokens.knows(self._signed_by)
        if self._credential is None:
            return True  # a certificate
        return self._credential in users.known.get(self.principal, {}).values()

    def _end(self, why: SessionEnd) -> None:
        self.authentication.ended[why] += 1
        self._connection.end_session(why)

    def close(self) -> None:
        """The client is gone, or upstream is of no use."""
        for timer in (self._expiry, self._renewal):
            if timer is not None:
                timer.cancel()
        self._closed = True
        if self._frames is not None:
            self._frames.abort(Unreachable("the client's connection has ended"))
            self._frames = None


def _other(one: Identity, other: Identity) -> bool:
    """Another user of upstream; a new password is none."""
    return one.username != other.username


def _answer(
    code: ErrorCode, data: bytes, *, message: str | None = None, lifetime_ms: int = 0
) -> Message:
    return {
        "ErrorCode": int(code),
        "ErrorMessage": message,
        "AuthBytes": data,
        "SessionLifetimeMs": lifetime_ms,
    }


def _illegal(key: int) -> Message:
    code = ErrorCode.ILLEGAL_SASL_STATE
    if key == ApiKey.SASL_HANDSHAKE:
        return {"ErrorCode": int(code), "Mechanisms": []}
    return _answer(code, b"", message="this listener has no SASL")
