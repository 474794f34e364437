"""The gateway's own client against a real Kafka with SASL over TLS."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from gateway.core.wire.errors import ErrorCode
from gateway.upstream.cluster import Upstream
from gateway.upstream.errors import Refused, Unreachable, UpstreamError
from gateway.upstream.settings import (
    SaslMechanism,
    SaslSettings,
    TlsSettings,
    UpstreamSettings,
)
from tests.rig.kafka import create_topic, produce
from tests.rig.secure_kafka import PASSWORD, USER, SecureKafka
from tests.rig.upstream_side import Collector, run, running

pytestmark = pytest.mark.integration

FreshName = Callable[[str], str]


def secure_settings(secure: SecureKafka, mechanism: SaslMechanism) -> UpstreamSettings:
    return UpstreamSettings(
        secure.secure_servers,
        sasl=SaslSettings(mechanism, USER, PASSWORD),
        tls=TlsSettings(ca_file=secure.certificate),
        request_timeout_ms=60_000,
    )


@pytest.mark.parametrize("mechanism", get_args(SaslMechanism))
def test_sasl_over_tls_reads_records(
    secure: SecureKafka, fresh_name: FreshName, mechanism: SaslMechanism
) -> None:
    name = fresh_name("secret")
    create_topic(secure.cluster.bootstrap_servers, name)
    produce(secure.cluster.bootstrap_servers, name, [(b"k", b"v")] * 10)

    async def work() -> None:
        async with running(secure_settings(secure, mechanism)) as side:
            assert {b.port for b in side.upstream.topology.brokers.values()} == {
                int(secure.secure_servers.rpartition(":")[2])
            }
            tail = Collector(side.reader, await side.partition(name)).start()
            await tail.reached(10)
            # The broker closes connections that do not authenticate again within 2 s.
            for count in range(11, 15):
                await asyncio.sleep(0.8)
                await asyncio.to_thread(
                    produce, secure.cluster.bootstrap_servers, name, [(b"k", b"v")]
                )
                await tail.reached(count)

    run(work())


async def start(settings: UpstreamSettings) -> None:
    async with Upstream(settings) as upstream:
        await upstream.start(timeout_ms=1)


@pytest.mark.parametrize("mechanism", get_args(SaslMechanism))
def test_a_wrong_password_is_refused_and_not_told(
    secure: SecureKafka, mechanism: SaslMechanism
) -> None:
    sasl = SaslSettings(mechanism, USER, "swordfish")
    with pytest.raises(Refused) as refused:
        run(start(replace(secure_settings(secure, mechanism), sasl=sasl)))
    assert refused.value.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert USER in str(refused.value)
    assert "swordfish" not in str(refused.value)


def test_an_unknown_authority_and_plain_bytes_are_unreachable(secure: SecureKafka) -> None:
    settings = secure_settings(secure, "PLAIN")
    with pytest.raises(Unreachable, match="certificate verify failed"):
        run(start(replace(settings, tls=TlsSettings())))
    with pytest.raises(UpstreamError):
        run(start(replace(settings, tls=None, connect_timeout_ms=2_000)))


def test_a_certificate_for_another_host_is_unreachable(secure: SecureKafka, tmp_path: Path) -> None:
    port = secure.secure_servers.rpartition(":")[2]
    tls = TlsSettings(ca_file=secure.certificate)
    other = replace(secure_settings(secure, "PLAIN"), bootstrap_servers=f"localhost:{port}")
    with pytest.raises(Unreachable, match="Hostname mismatch"):
        run(start(replace(other, tls=tls)))
    assert not list(tmp_path.iterdir())
