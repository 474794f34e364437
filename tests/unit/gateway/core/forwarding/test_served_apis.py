"""The served APIs, and the way of each."""

from __future__ import annotations

import pytest

from gateway.core.forwarding.served_apis import offered, rules
from gateway.core.wire.apis import KNOWN, ApiKey

SHARE = (76, 77, 78, 79)


def test_every_api_is_served_in_one_way_or_not_at_all() -> None:
    served = rules(SHARE)
    ways = [served.passed, frozenset(served.rewritten), frozenset(served.local)]
    assert sum(len(way) for way in ways) == len(frozenset().union(*ways))
    not_served = set(KNOWN) - frozenset().union(*ways)
    assert not_served == {key for key, api in KNOWN.items() if api.internal} | {90, 91, 92}


def test_delegation_tokens_are_for_clients_that_upstream_authenticates() -> None:
    tokens = {key for key, api in KNOWN.items() if api.name.endswith("DelegationToken")}
    assert len(tokens) == 4
    assert tokens <= rules(SHARE, sasl=True).passed
    terminated = rules(SHARE, terminated=True)
    assert tokens.isdisjoint(terminated.passed)
    assert all(offered(key, 1, 3, terminated) is None for key in tokens)


def test_a_handler_takes_its_api_from_upstream() -> None:
    served = rules([*SHARE, ApiKey.METADATA, ApiKey.LIST_OFFSETS])
    assert ApiKey.METADATA not in served.rewritten
    assert ApiKey.LIST_OFFSETS not in served.passed
    assert served.local[ApiKey.SHARE_FETCH] == (1, 2)
    assert offered(ApiKey.METADATA, 0, 99, served) is None


def test_a_merged_api_is_offered_as_far_as_upstream_has_it() -> None:
    served = rules([ApiKey.LIST_GROUPS, ApiKey.DELETE_GROUPS])
    assert offered(ApiKey.LIST_GROUPS, 0, 4, served) == (0, 4)
    assert offered(ApiKey.LIST_GROUPS, 0, 99, served) == (0, 5)
    assert offered(ApiKey.DELETE_GROUPS, 3, 4, served) is None


@pytest.mark.parametrize(
    ("key", "upstream", "told"),
    [
        (ApiKey.PRODUCE, (3, 11), (0, 11)),
        (ApiKey.PRODUCE, (3, 99), (0, 13)),
        (ApiKey.FETCH, (0, 3), (0, 3)),
        (ApiKey.FETCH, (19, 20), None),
        (ApiKey.DESCRIBE_CONFIGS, (0, 4), (1, 4)),  # v0 is not in our tables
        (ApiKey.CREATE_TOPICS, (0, 99), (0, 7)),
        (ApiKey.SASL_HANDSHAKE, (0, 1), (1, 1)),
        (ApiKey.SASL_HANDSHAKE, (0, 0), None),
        (ApiKey.WRITE_TXN_MARKERS, (1, 2), (1, 2)),
        (ApiKey.ENVELOPE, (0, 0), None),
        (ApiKey.SHARE_FETCH, (0, 1), None),
        (93, (0, 0), None),
    ],
)
def test_versions_a_client_is_told(
    key: int, upstream: tuple[int, int], told: tuple[int, int] | None
) -> None:
    assert offered(key, *upstream, rules([])) == told
