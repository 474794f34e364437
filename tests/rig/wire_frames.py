"""Request and response frames for tests of the forwarding path."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.core.forwarding.effects import (
    Answered,
    Effect,
    Failed,
    Intercepted,
    Rewrite,
    ToClient,
    ToUpstream,
)
from gateway.core.wire.apis import APIS
from gateway.core.wire.codec import encode_request, encode_response
from gateway.core.wire.frames import request_frame, response_frame
from gateway.core.wire.schema import Message


def request(
    key: int,
    version: int | None = None,
    message: Message | None = None,
    *,
    correlation_id: int = 1,
    client_id: str | None = "test",
) -> bytes:
    """With its size prefix; without a version the newest one."""
    version = APIS[key].max_version if version is None else version
    body = encode_request(key, version, message or {})
    return request_frame(key, version, correlation_id, client_id, body)


def response(
    key: int,
    version: int | None = None,
    message: Message | None = None,
    *,
    correlation_id: int = 1,
) -> bytes:
    """With its size prefix; without a version the newest one."""
    version = APIS[key].max_version if version is None else version
    body = encode_response(key, version, message or {})
    return response_frame(key, version, correlation_id, body)


def to_upstream(effects: Iterable[Effect]) -> bytes:
    return b"".join(effect.data for effect in effects if isinstance(effect, ToUpstream))


def to_client(effects: Iterable[Effect]) -> bytes:
    return b"".join(effect.data for effect in effects if isinstance(effect, ToClient))


def joined(effects: Iterable[Effect]) -> list[Effect]:
    """The effects, with neighbouring bytes of one direction in one piece."""
    result: list[Effect] = []
    for effect in effects:
        last = result[-1] if result else None
        if isinstance(effect, ToUpstream):
            before = bytes(result.pop().data) if isinstance(last, ToUpstream) else b""  # type: ignore[union-attr]
            result.append(ToUpstream(before + bytes(effect.data)))
        elif isinstance(effect, ToClient):
            before = bytes(result.pop().data) if isinstance(last, ToClient) else b""  # type: ignore[union-attr]
            result.append(ToClient(before + bytes(effect.data)))
        else:
            assert isinstance(effect, Intercepted | Rewrite | Answered | Failed)
            result.append(effect)
    return result
