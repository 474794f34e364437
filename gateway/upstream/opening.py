"""What is asked on a connection to a broker before anything else: ApiVersions, and SASL.

`where` is the place it leads to, as errors name it.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Awaitable, Callable

from gateway.core.cluster.scram import ScramClient, ScramError, check_server_final
from gateway.core.forwarding.own_answers import own_answer
from gateway.core.wire.apis import APIS, ApiKey
from gateway.core.wire.codec import decode_response, encode_request
from gateway.core.wire.errors import ErrorCode, WireError
from gateway.core.wire.frames import parse_response_header
from gateway.core.wire.schema import Message
from gateway.upstream.errors import Refused, Unreachable
from gateway.upstream.frames import Frames
from gateway.upstream.scram_keys import ScramKeyring
from gateway.upstream.settings import SaslSettings

API_VERSIONS_BODY = {"ClientSoftwareName": "keyway", "ClientSoftwareVersion": "0"}
API_VERSIONS_VERSION = 3  # every broker since 2.4 knows it; older ones say so in v0

_SHORT = struct.Struct(">h")

Versions = dict[int, tuple[int, int]]  # by API key, as the broker has them
Ask = Callable[[int, int, Message], Awaitable[Message]]  # API key, version, body


def version_for(versions: Versions, where: object, key: int, version_max: int | None = None) -> int:
    """The highest version both know. Raises Refused."""
    api = APIS[key]
    theirs = versions.get(key, (0, -1))
    best = min(api.max_version, theirs[1])
    if version_max is not None:
        best = min(best, version_max)
    if best < max(api.min_version, theirs[0]):
        raise Refused(ErrorCode.UNSUPPORTED_VERSION, f"{ApiKey(key).name} at {where}")
    return best


async def ask(
    frames: Frames, where: object, client_id: str, key: int, version: int, body: Message
) -> Message:
    """Raises UpstreamError."""
    frame = await frames.ask(key, version, client_id, encode_request(key, version, body))
    try:
        return own_answer(key, version, frame)
    except WireError as error:
        broken = Unreachable(f"{where}: unreadable {ApiKey(key).name}: {error}")
        frames.abort(broken)
        raise broken from error


async def negotiate(frames: Frames, where: object, client_id: str) -> Versions:
    """Raises UpstreamError."""
    key = ApiKey.API_VERSIONS
    version = API_VERSIONS_VERSION
    encoded = encode_request(key, version, API_VERSIONS_BODY)
    frame = await frames.ask(key, version, client_id, encoded)
    if _SHORT.unpack_from(frame, 4)[0] == ErrorCode.UNSUPPORTED_VERSION:
        version = 0  # KIP-511: an older broker answers in v0
        frame = await frames.ask(key, version, client_id, encode_request(key, version, {}))
    return versions_of(version, frame, where)


def versions_of(version: int, frame: bytes, where: object) -> Versions:
    """`frame`: an answer of ApiVersions in this version. Raises UpstreamError."""
    key = ApiKey.API_VERSIONS
    try:
        response = decode_response(
            key, version, frame, parse_response_header(key, version, frame).body_at
        )
    except WireError as error:
        raise Unreachable(f"{where}: unreadable ApiVersions: {error}") from error
    if response["ErrorCode"] != 0:
        raise Refused(response["ErrorCode"], f"ApiVersions at {where}")
    return {
        entry["ApiKey"]: (entry["MinVersion"], entry["MaxVersion"]) for entry in response["ApiKeys"]
    }


async def authenticate(
    ask: Ask, versions: Versions, where: object, sasl: SaslSettings, keyring: ScramKeyring
) -> int:
    """How many milliseconds the session lasts; 0: it does not end. Raises UpstreamError."""
    key = ApiKey.SASL_HANDSHAKE
    version = version_for(versions, where, key)
    response = await ask(key, version, {"Mechanism": sasl.mechanism})
    if response["ErrorCode"] != 0:
        offered = ", ".join(response["Mechanisms"])
        what = f"SASL {sasl.mechanism} at {where} (it offers: {offered})"
        raise Refused(response["ErrorCode"], what)

    async def step(token: bytes) -> Message:
        key = ApiKey.SASL_AUTHENTICATE
        response = await ask(key, version_for(versions, where, key), {"AuthBytes": token})
        if response["ErrorCode"] != 0:
            what = f"SASL {sasl.mechanism} as {sasl.username!r} at {where}"
            raise Refused(response["ErrorCode"], what)
        return response

    if sasl.mechanism == "PLAIN":
        last = await step(f"\0{sasl.username}\0{sasl.password}".encode())
    else:
        last = await _scram(step, where, sasl, keyring)
    lifetime_ms: int = last["SessionLifetimeMs"]
    return lifetime_ms


async def _scram(
    step: Callable[[bytes], Awaitable[Message]],
    where: object,
    sasl: SaslSettings,
    keyring: ScramKeyring,
) -> Message:
    hash_name = sasl.mechanism.removeprefix("SCRAM-").replace("SHA-", "sha")
    scram = ScramClient(hash_name, sasl.username, sasl.password, secrets.token_hex(16))
    challenge = (await step(scram.first()))["AuthBytes"]
    try:
        keys = await keyring.keys(scram.source(challenge))
        answer, signature = scram.final(challenge, keys)
        response = await step(answer)
        check_server_final(response["AuthBytes"], signature)
    except ScramError as error:
        what = f"SASL {sasl.mechanism} at {where}: {error}"
        raise Refused(ErrorCode.SASL_AUTHENTICATION_FAILED, what) from error
    return response
