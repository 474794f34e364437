"""The APIs that a client may use through the gateway, with their versions.

A request that is not decoded passes at any version. A response that shows an address must be
understood, so those APIs are served in the versions of our tables; ApiVersions tells clients so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gateway.core.cluster.slots import ONE_SLOT, Slots
from gateway.core.forwarding.broker_names import NAMING_BROKERS
from gateway.core.forwarding.effects import Rules, Screen
from gateway.core.limits import FRAME_BYTES_MAX
from gateway.core.wire.apis import APIS, KNOWN, ApiKey

# Share groups are the gateway's own: upstream's are another world, and ShareFetch
# and ShareAcknowledge show addresses. Without a handler they are not served.
_SHARE: Final = frozenset(
    {
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    }
)

REWRITTEN: Final = (
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.METADATA,
    ApiKey.FIND_COORDINATOR,
    ApiKey.API_VERSIONS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
)

# Answered here with upstream's own answer in it, so in no version that upstream lacks.
MERGED: Final = NAMING_BROKERS | {
    ApiKey.LIST_GROUPS,
    ApiKey.DELETE_GROUPS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
}

# Credentials of Kafka's own. A client that the gateway has authenticated makes and sees none of its
# identity: they are good past the gateway, also when the client is shut out here.
_DELEGATION_TOKENS: Final = frozenset(
    {
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
    }
)

# Versions before the first one with node endpoints pass unread, however old.
_PASS_WHEN_OLD: Final = frozenset({ApiKey.PRODUCE, ApiKey.FETCH})


def rules(
    local: Iterable[int],
    *,
    frame_bytes_max: int = FRAME_BYTES_MAX,
    sasl: bool = False,
    terminated: bool = False,
    login: bool = False,
    slots: Slots = ONE_SLOT,
    screen: Screen | None = None,
) -> Rules:
    """`local`: the API keys that have a handler. `terminated`: SASL ends at the gateway; `login`:
    clients have to log in with it.
    """
    served_here = {int(key): (APIS[key].min_version, APIS[key].max_version) for key in local}
    if (
        terminated
    ):  # both are the gateway's; v0 of the handshake is followed by tokens without headers
        served_here |= {int(ApiKey.SASL_HANDSHAKE): (1, 1), int(ApiKey.SASL_AUTHENTICATE): (0, 2)}
    rewritten = {
        int(key): (0 if key in _PASS_WHEN_OLD else APIS[key].min_version, APIS[key].max_version)
        for key in REWRITTEN
        if key not in served_here
    }
    passed = frozenset(
        key
        for key, known in KNOWN.items()
        if not known.internal
        and key not in _SHARE
        and key not in served_here
        and key not in rewritten
        and not (terminated and key in _DELEGATION_TOKENS)
    )
    return Rules(
        passed=passed,
        rewritten=rewritten,
        local=served_here,
        frame_bytes_max=frame_bytes_max,
        sasl=sasl,
        login=login,
        slots=slots,
        screen=screen or Screen(),
    )


def offered(key: int, low: int, high: int, rules: Rules) -> tuple[int, int] | None:
    """The versions a client is told of, where upstream has low..high of `key`; None: none.

    Keys with a handler are not upstream's to offer, but for the merged ones.
    """
    if key in rules.local and key not in MERGED:
        return None
    known = rules.local.get(key, rules.rewritten.get(key))
    if known is not None:
        low, high = max(low, known[0]), min(high, known[1])
    elif key in rules.passed:
        high = min(high, KNOWN[key].max_version)
    else:
        return None
    if key == ApiKey.PRODUCE:
        low = 0  # KAFKA-18659: older librdkafka would not compress
    elif key == ApiKey.SASL_HANDSHAKE:
        low = max(low, 1)  # v0 is followed by tokens without frame headers
    return (low, high) if low <= high else None
