"""The metrics of client connections."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from gateway.core.client_limits import accounts as accounts_module
from gateway.core.client_limits.account import Account
from gateway.core.client_limits.accounts import Accounts
from gateway.core.client_limits.rules import Per, Rule, Who
from gateway.core.cluster.topology import Topology
from gateway.core.forwarding.effects import Rewrite
from gateway.core.forwarding.served_apis import rules
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.listen.counters import Counters, Refused
from gateway.listen.metrics import LimitsCollector, ServerCollector, TopicTrafficCollector
from gateway.listen.server import ClientConnection, ConnectionId, Server, ServerSettings
from tests.rig.wire_frames import response


def exported(*collectors: Collector) -> str:
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    return generate_latest(registry).decode()


def test_the_server_is_read_when_asked() -> None:
    counters = Counters()
    metrics = ServerCollector(counters, lambda: 4)
    assert "keyway_server_requests_total{" not in exported(metrics)
    counters.connections_opened, counters.connections_failed = 9, 2
    counters.bytes_from_clients, counters.bytes_to_clients = 100, 10
    apis = counters.apis
    apis.requests.update({int(ApiKey.SHARE_FETCH): 7, int(ApiKey.PRODUCE): 3})
    for took_ms in (1, 2, 40, 60_000):
        apis.answered(ApiKey.PRODUCE, took_ms * 1_000_000)
    apis.answered(ApiKey.SHARE_FETCH, 503_000_000, 500_000_000)
    apis.answered(ApiKey.FETCH, 500_000_000)
    apis.throttled(ApiKey.PRODUCE, 1_500)
    counters.count_refused(Refused.TOO_MANY_CLIENTS)
    for _ in range(2):
        counters.count_request_refused(ApiKey.SHARE_FETCH, ErrorCode.UNKNOWN_MEMBER_ID)
    denied = 'api="share_fetch",error="unknown_member_id"'
    text = exported(metrics)
    for line in (
        'keyway_server_refused_total{reason="too_many_clients"} 1.0',
        f"keyway_server_requests_refused_total{{{denied}}} 2.0",
        "# TYPE keyway_server_connections gauge",
        "keyway_server_connections 4.0",
        "# TYPE keyway_server_connections_opened_total counter",
        "keyway_server_connections_opened_total 9.0",
        "keyway_server_connections_failed_total 2.0",
        "keyway_server_bytes_from_clients_total 100.0",
        "keyway_server_bytes_to_clients_total 10.0",
        'keyway_server_requests_total{api="produce"} 3.0',
        'keyway_server_requests_total{api="share_fetch"} 7.0',
        'keyway_server_request_seconds_bucket{api="produce",le="0.001"} 1.0',
        'keyway_server_request_seconds_bucket{api="produce",le="0.025"} 2.0',
        'keyway_server_request_seconds_bucket{api="produce",le="30.0"} 3.0',
        'keyway_server_request_seconds_bucket{api="produce",le="+Inf"} 4.0',
        'keyway_server_request_seconds_count{api="produce"} 4.0',
        'keyway_server_request_seconds_sum{api="produce"} 60.043',
        'keyway_server_request_seconds_sum{api="share_fetch"} 0.003',
        'keyway_server_request_wait_seconds_sum{api="share_fetch"} 0.5',
        'keyway_server_request_wait_seconds_bucket{api="fetch",le="0.25"} 0.0',
        'keyway_server_request_wait_seconds_bucket{api="fetch",le="0.5"} 1.0',
        'keyway_server_throttled_seconds_total{api="produce"} 1.5',
    ):
        assert f"{line}\n" in text
    assert 'keyway_server_request_seconds_count{api="fetch"}' not in text, "it may only wait"


def test_every_api_that_can_be_counted_has_a_name() -> None:
    served = rules([])
    counters = Counters()
    metrics = ServerCollector(counters, lambda: 0)
    keys = [*served.passed, *served.rewritten]
    for key in keys:
        counters.apis.asked(key)
    assert exported(metrics).count("keyway_server_requests_total{") == len(keys)


def test_topics_of_metadata_answers_have_bytes_of_their_own() -> None:
    """A name that upstream refuses is no topic: no client can make a label of it."""
    server = Server(ServerSettings(()), Topology(), {})
    known = [
        {"Name": "orders", "TopicId": b"o" * 16},
        {"Name": "secret", "ErrorCode": int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)},
        {"Name": None, "TopicId": b"u" * 16, "ErrorCode": int(ErrorCode.UNKNOWN_TOPIC_ID)},
    ]
    for version in (9, 13):
        named = known if version == 13 else [{"Name": "old"}]
        answer = response(ApiKey.METADATA, version, {"Topics": named})
        client = ClientConnection(ConnectionId(1), None, server, listener="clients")
        server.rewritten(Rewrite(ApiKey.METADATA, version, answer[4:]), client)
    topics = server.counters.apis.topics
    assert list(topics.by_name) == [b"old", b"orders"]
    metrics = TopicTrafficCollector(topics)
    topics.by_id[b"o" * 16].produced += 100
    topics.by_name[b"old"].fetched += 50
    topics.unnamed.fetched += 5
    exported(metrics)  # the first scrape decides about the topics that are shown
    topics.by_name[b"orders"].produced += 11
    topics.by_name[b"old"].fetched += 7
    topics.unnamed.fetched += 1
    text = exported(metrics)
    for line in (
        'keyway_topic_produced_bytes_total{topic="orders"} 11.0',
        'keyway_topic_produced_bytes_total{topic="other"} 100.0',
        'keyway_topic_fetched_bytes_total{topic="old"} 7.0',
        'keyway_topic_fetched_bytes_total{topic="other"} 56.0',
    ):
        assert f"{line}\n" in text


def test_limits_are_counted_by_rule_whoever_shares_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures of an account that made room for another one stay in the sum of its rule."""
    monkeypatch.setattr(accounts_module, "LIMIT_ACCOUNTS_MAX", 2)
    each = Rule(name="each", principal="t-*", per=Per.PRINCIPAL, bytes_in_per_s=1_000)
    accounts = Accounts([each, Rule(name="rest", connections=3)])
    metrics = LimitsCollector(accounts)
    now_ns = 100_000_000_000
    assert 'keyway_limits_requests_total{rule="rest"} 0.0\n' in exported(metrics)

    def used(principal: str, size: int) -> Account:
        found = accounts.find(Who(address="a", client_id="c", principal=principal), now_ns)
        assert isinstance(found, Account)
        found.asked(ApiKey.PRODUCE, size, now_ns)
        found.answered(ApiKey.PRODUCE, 10, now_ns)
        return found

    used("t-1", 500)
    held = used("t-2", 4_500)
    held.connections.update((1, 2))
    held.muted, held.refused = 3, 4
    used("t-3", 100)
    assert [account.who for account in accounts.all()] == ["t-2", "t-3"], "t-1 is gone"
    text = exported(metrics)
    for line in (
        "# TYPE keyway_limits_connections gauge",
        'keyway_limits_connections{rule="each"} 2.0',
        'keyway_limits_requests_total{rule="each"} 3.0',
        'keyway_limits_bytes_in_total{rule="each"} 5100.0',
        'keyway_limits_bytes_out_total{rule="each"} 30.0',
        'keyway_limits_throttled_seconds_total{rule="each"} 3.5',
        'keyway_limits_muted_total{rule="each"} 3.0',
        'keyway_limits_refused_total{rule="each"} 4.0',
        'keyway_limits_connections{rule="rest"} 0.0',
        'keyway_limits_bytes_in_total{rule="rest"} 0.0',
    ):
        assert f"{line}\n" in text
    accounts.replace([each])
    assert 'rule="rest"' not in exported(metrics)
