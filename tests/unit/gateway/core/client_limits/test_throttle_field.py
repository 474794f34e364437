"""ThrottleTimeMs where our tables of Kafka's messages have it, in every version."""

from __future__ import annotations

import pytest

from gateway.core.client_limits.throttle_field import throttle_at, throttle_of, throttled
from gateway.core.wire.apis import APIS, ApiKey
from gateway.core.wire.codec import decode_response
from gateway.core.wire.errors import EncodeError
from gateway.core.wire.frames import parse_response_header
from tests.rig.wire_frames import response

# These have the field behind others.
UNTOLD = {ApiKey.API_VERSIONS, ApiKey.OFFSET_DELETE}
CASES = [
    (key, version)
    for key, api in sorted(APIS.items())
    if not api.name.startswith("Sasl")
    for version in range(api.min_version, api.max_version + 1)
]


def read(key: int, version: int, frame: bytes) -> int | None:
    body_at = parse_response_header(key, version, frame[4:]).body_at
    found = decode_response(key, version, frame[4:], body_at).get("ThrottleTimeMs")
    return None if found is None else int(found)


@pytest.mark.parametrize(("key", "version"), CASES)
def test_the_field_of_each_version(key: int, version: int) -> None:
    try:
        frame = response(key, version, {"ThrottleTimeMs": 7})
    except EncodeError:  # no version of it has the field
        frame = response(key, version)
    at = throttle_at(key, version, frame, 0, len(frame))
    has_it = read(key, version, frame) == 7
    assert (at >= 0) == (has_it and key not in UNTOLD)
    if at >= 0:
        assert throttle_of(frame, at) == 7
        assert read(key, version, throttled(frame, at, 70)) == 70
        assert throttled(frame, at, 3) == frame, "upstream's longer wait stays"
        assert throttle_at(key, version, frame[: at + 3], 0, len(frame)) == -1, "cut off"
