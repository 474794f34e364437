"""Logins at upstream: a password costs processor time once, and never the event loop's."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Callable

import pytest

from gateway.core.cluster.scram import KeySource
from gateway.core.identity.credentials import ScramCredential, derived
from gateway.core.identity.sasl_server import ScramServer, scram_first
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.schema import Message
from gateway.upstream import scram_keys
from gateway.upstream.errors import Refused
from gateway.upstream.limits import SCRAM_KEYS_AT_ONCE
from gateway.upstream.opening import Ask, authenticate
from gateway.upstream.scram_keys import ScramKeyring
from gateway.upstream.settings import SaslSettings

VERSIONS = {int(ApiKey.SASL_HANDSHAKE): (0, 1), int(ApiKey.SASL_AUTHENTICATE): (0, 2)}
SHOP = SaslSettings("SCRAM-SHA-512", "shop", "pencil")
CLIENTS = 20


def broker(credential: ScramCredential) -> Ask:
    """Of one connection."""
    exchanges: list[ScramServer] = []

    async def ask(key: int, _version: int, body: Message) -> Message:
        await asyncio.sleep(0)
        if key == ApiKey.SASL_HANDSHAKE:
            return {"ErrorCode": 0, "Mechanisms": [SHOP.mechanism]}
        if not exchanges:
            exchanges.append(ScramServer(scram_first(body["AuthBytes"]), credential, "server"))
            said: bytes | None = exchanges[0].challenge()
        else:
            said = exchanges[0].final(body["AuthBytes"])
        if said is None:
            return {"ErrorCode": 58, "AuthBytes": b"", "SessionLifetimeMs": 0}
        return {"ErrorCode": 0, "AuthBytes": said, "SessionLifetimeMs": 0}

    return ask


@pytest.fixture
def derivations(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The thread of each."""
    threads: list[int] = []
    pbkdf2: Callable[..., bytes] = hashlib.pbkdf2_hmac

    def counted(*arguments: object) -> bytes:
        threads.append(threading.get_ident())
        return pbkdf2(*arguments)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", counted)
    return threads


def test_a_crowd_of_one_identity_is_derived_once_and_beside_the_event_loop(
    derivations: list[int],
) -> None:
    """A restart with 5,000 clients stood still for 26 s."""
    known = derived("sha512", b"pencil", b"salt", 4_096)
    derivations.clear()

    async def work() -> None:
        keyring = ScramKeyring()
        for _ in range(2):
            async with asyncio.TaskGroup() as crowd:
                for _ in range(CLIENTS):
                    crowd.create_task(authenticate(broker(known), VERSIONS, "it", SHOP, keyring))

    asyncio.run(work())
    assert 1 <= len(derivations) <= SCRAM_KEYS_AT_ONCE
    assert threading.get_ident() not in derivations


def test_a_password_or_salt_that_is_new_counts_at_once() -> None:
    async def work() -> None:
        keyring = ScramKeyring()
        for password, salt in ((b"pencil", b"salt"), (b"pencil", b"other"), (b"pen", b"other")):
            known = derived("sha512", password, salt, 4_096)
            mine = SaslSettings(SHOP.mechanism, SHOP.username, password.decode())
            await authenticate(broker(known), VERSIONS, "it", mine, keyring)
        with pytest.raises(Refused):
            await authenticate(broker(known), VERSIONS, "it", SHOP, keyring)

    asyncio.run(work())


def test_the_keys_that_were_used_last_are_kept(
    derivations: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scram_keys, "SCRAM_KEYS_MAX", 2)

    async def work() -> None:
        keyring = ScramKeyring()
        for salt in (b"a", b"b", b"a", b"c", b"a", b"b"):  # c takes the place of b
            await keyring.keys(KeySource("sha256", "pencil", salt, 4_096))

    asyncio.run(work())
    assert len(derivations) == 4
