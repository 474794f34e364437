"""Tokens of OAUTHBEARER: JWTs that an issuer has signed (RFC 7519). joserfc checks the signature,
gateway/core/identity/claims.py what is signed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog

from gateway.core.identity.claims import BadToken, Bearer, judged
from gateway.listen.limits import (
    KEY_SET_BYTES_MAX,
    KEY_SET_S,
    KEY_SET_SOON_S,
    KEY_SET_TIMEOUT_S,
    KEYS_TRIED_MAX,
)
from gateway.listen.settings import BearerSettings
from gateway.listen.watched_file import WatchedFile
from keyway.clusters.yaml_file import ConfigError

if TYPE_CHECKING:
    from joserfc.jwk import ECKey, OKPKey, RSAKey

    PublicKey = RSAKey | ECKey | OKPKey

log = structlog.get_logger("keyway.listen")

# Never a shared secret ("oct"), whoever publishes it.
_KEY_TYPES: Final = ("RSA", "EC", "OKP")


def _wall_s() -> float:
    return datetime.now(UTC).timestamp()


class KeySet:
    def __init__(self, keys: Sequence[PublicKey]) -> None:
        self.keys = keys
        self.thumbprints = frozenset(key.thumbprint() for key in keys)


class BearerTokens:
    """`wall_s`: the time that tokens are bound to. Raises ConfigError."""

    def __init__(
        self, settings: BearerSettings, option: str, wall_s: Callable[[], float] = _wall_s
    ) -> None:
        try:
            import joserfc  # noqa: F401
        except ImportError as missing:
            raise ConfigError(f"{option}: pip install 'keyway-gateway[oauth]'") from missing
        self.settings = settings
        self.file: WatchedFile[KeySet] | None = None
        self.problem: str | None = None  # why the URL did not answer
        self._wall_s = wall_s
        self._fetched = KeySet(())
        self._other_keys = False  # since they were last asked for
        self._fetching = asyncio.Lock()
        self._fetch_not_before = 0.0  # loop time
        path = settings.jwks_file
        if path is not None:
            try:
                self.file = WatchedFile(path, lambda: _read(path))
            except ConfigError as error:
                raise ConfigError(f"{option}.jwks_file: {error}") from error

    @property
    def _set(self) -> KeySet:
        return self._fetched if self.file is None else self.file.value

    @property
    def keys(self) -> Sequence[PublicKey]:
        return self._set.keys

    def other_keys(self) -> bool:
        """The URL has answered with other keys since the last call."""
        other, self._other_keys = self._other_keys, False
        return other

    def knows(self, thumbprint: str) -> bool:
        """The key is still one of the issuer's."""
        return thumbprint in self._set.thumbprints

    async def judged(self, token: str) -> tuple[Bearer, str]:
        """And the thumbprint of the key that signed it. Raises BadToken."""
        headers, key_id = self._headers(token)
        if not self._fitting(key_id) and self.settings.jwks_url is not None:
            await self._fetch()
        claims, thumbprint = self._signed(token, self._fitting(key_id))
        if headers.get("crit") is not None:
            raise BadToken("critical headers are not known")
        return judged(claims, self.settings.rules, self._wall_s()), thumbprint

    def remaining_s(self, bearer: Bearer) -> float:
        """Seconds until the token is refused."""
        return bearer.expires_s + self.settings.rules.skew_s - self._wall_s()

    async def fetch_forever(self) -> None:
        while self.settings.jwks_url is not None:
            await self._fetch()
            await asyncio.sleep(KEY_SET_S)

    # --------------------------------------------------------------------------------- signature

    def _headers(self, token: str) -> tuple[Mapping[str, Any], str | None]:
        from joserfc import jws
        from joserfc.errors import JoseError

        try:
            headers = jws.extract_compact(token.encode()).headers()
        except (JoseError, ValueError) as error:
            raise BadToken("no signed JWT") from error
        if headers.get("alg") not in self.settings.algorithms:
            raise BadToken("another algorithm than those that are allowed")
        key_id = headers.get("kid")
        if not isinstance(key_id, str | None):
            raise BadToken("kid is no text")
        return headers, key_id

    def _fitting(self, key_id: str | None) -> Sequence[PublicKey]:
        if key_id is None:
            return self.keys[:KEYS_TRIED_MAX]
        return [key for key in self.keys if key.kid == key_id][:KEYS_TRIED_MAX]

    def _signed(self, token: str, keys: Sequence[PublicKey]) -> tuple[dict[str, Any], str]:
        from joserfc import jws
        from joserfc.errors import JoseError

        allowed = list(self.settings.algorithms)
        for key in keys:
            try:
                payload = jws.deserialize_compact(token, key, algorithms=allowed).payload
                claims = json.loads(payload)
            except (JoseError, ValueError, TypeError):
                continue
            if isinstance(claims, dict):
                return claims, key.thumbprint()
        raise BadToken("no key of the issuer has signed it")

    # -------------------------------------------------------------------------------------- keys

    async def _fetch(self) -> None:
        """Fetches the keys, at most once in a while: strangers can name any key."""
        async with self._fetching:
            loop = asyncio.get_running_loop()
            if loop.time() < self._fetch_not_before:
                return
            self._fetch_not_before = loop.time() + KEY_SET_SOON_S
            before = self.problem
            try:
                text = await _get(self.settings.jwks_url or "")
                fetched = await asyncio.to_thread(_keys, text)  # thousands of keys at the most
            except ConfigError as error:
                self.problem = f"{self.settings.jwks_url}: {error}"
                if self.problem != before:
                    log.error("token_keys_not_read", detail=self.problem)
                return
            if fetched.thumbprints != self._fetched.thumbprints:
                self._other_keys = True
            self._fetched, self.problem = fetched, None
            if before is not None:
                log.info("token_keys_read", url=self.settings.jwks_url, keys=len(fetched.keys))


async def _get(url: str) -> str:
    """Raises ConfigError."""
    import httpx

    read = bytearray()
    try:
        async with (
            asyncio.timeout(KEY_SET_TIMEOUT_S),
            httpx.AsyncClient(timeout=KEY_SET_TIMEOUT_S) as client,
            client.stream("GET", url, headers={"Accept": "application/json"}) as answer,
        ):
            if answer.status_code != httpx.codes.OK:
                raise ConfigError(f"status {answer.status_code}")
            async for piece in answer.aiter_bytes():
                read += piece
                if len(read) > KEY_SET_BYTES_MAX:
                    raise ConfigError(f"more than {KEY_SET_BYTES_MAX} bytes")
    except (httpx.HTTPError, OSError, TimeoutError) as error:
        raise ConfigError(str(error) or type(error).__name__) from error
    return read.decode("utf-8", "replace")


def _read(path: Path) -> KeySet:
    """Raises ConfigError."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8") from error
    try:
        return _keys(text)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def _keys(text: str) -> KeySet:
    """The keys of a JSON Web Key Set (RFC 7517). Keys for encryption and shared secrets are left
    out. Raises ConfigError.
    """
    from joserfc import jwk
    from joserfc.errors import JoseError

    try:
        entries = json.loads(text)["keys"]
        signing = [
            entry
            for entry in entries
            if entry.get("kty") in _KEY_TYPES and entry.get("use") in (None, "sig")
        ]
        keys: list[Any] = [jwk.import_key(entry) for entry in signing]
    except (JoseError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError("no JSON Web Key Set") from error
    if not keys:
        raise ConfigError("no key for signatures")
    return KeySet(keys)
