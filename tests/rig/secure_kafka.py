"""A real broker with a second listener for the gateway's own identity: SASL over TLS.

`kafka.cert` is self-signed for 127.0.0.1 and its own authority. Clients of the test itself use the
plain listener.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.process import free_ports
from tests.rig.kafka import NEVER_KILLED

USER, PASSWORD = "keyway", "pass,word=ünd"
ANSWER_S_MAX = 30.0


@dataclass(frozen=True)
class SecureKafka:
    cluster: KafkaCluster
    secure_servers: str
    certificate: Path


@contextmanager
def secure_kafka(directory: Path) -> Iterator[SecureKafka]:
    store = self_signed(directory)
    first = free_ports(3)
    plain, controller, secure = first, first + 1, first + 2
    plain_jaas = (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="broker" password="broker" user_{USER}="{_escaped(PASSWORD)}";'
    )
    scram_jaas = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    bearer_jaas = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
    advertised = f"CLIENT://127.0.0.1:{plain},SECURE://127.0.0.1:{secure}"
    properties = {
        **NEVER_KILLED,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"{advertised},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": advertised,
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL",
        "listener.name.secure.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,"
        "OAUTHBEARER",
        "listener.name.secure.plain.sasl.jaas.config": plain_jaas,
        "listener.name.secure.scram-sha-256.sasl.jaas.config": scram_jaas,
        "listener.name.secure.scram-sha-512.sasl.jaas.config": scram_jaas,
        "listener.name.secure.oauthbearer.sasl.jaas.config": bearer_jaas,
        "listener.name.secure.connections.max.reauth.ms": "2000",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
    }
    with KafkaCluster(1, properties=properties, ports=(plain,)) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            upsertion = UserScramCredentialUpsertion(
                USER, ScramCredentialInfo(mechanism, 4_096), PASSWORD.encode()
            )
            admin.alter_user_scram_credentials([upsertion])[USER].result(ANSWER_S_MAX)
        yield SecureKafka(cluster, f"127.0.0.1:{secure}", directory / "kafka.cert")


def _escaped(text: str) -> str:
    """For server.properties, which Java reads as ISO 8859-1."""
    return "".join(c if ord(c) < 128 else f"\\u{ord(c):04x}" for c in text)


def self_signed(directory: Path) -> Path:
    """A PEM store with key and certificate; the certificate alone goes to kafka.cert."""
    key, certificate, store = (
        directory / name for name in ("kafka.key", "kafka.cert", "store.pem")
    )
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    store.write_text(key.read_text() + certificate.read_text())
    return store
