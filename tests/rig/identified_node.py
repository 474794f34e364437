"""A broker that knows users and ACLs, and a node whose listeners authenticate clients themselves.

Clients have other names and passwords here than their identities have at upstream: what works at
the gateway works nowhere else, and the other way round.
"""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

from gateway.core.identity.credentials import derived
from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.process import free_ports
from tests.rig.certificates import Authority, Issued
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import NEVER_KILLED, create_topic

CLIENTS = ("anna", "bert")  # each has a topic and a group of its own name, and nothing else
WITHOUT_IDENTITY = "carl"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
ISSUER, AUDIENCE = "https://issuer.example", "keyway"
OWN_IDENTITY = {
    "mechanism": "SCRAM-SHA-512",
    "username": "keyway",
    "password": "keyway-secret",
}
ANSWER_S_MAX = 30.0
_BROKER_IDS = 3
_ALLOWED = (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE)


def gate_password(client: str) -> str:
    return f"{client}-gate"


def kafka_user(client: str) -> str:
    return f"upstream-{client}"


def kafka_password(client: str) -> str:
    return f"{client}-kafka,=ü"


def hashed(password: str) -> dict[str, str]:
    return {
        mechanism: derived(hash_name, password.encode(), b"salt-of-sixteen!", 4096).text()
        for mechanism, hash_name in (("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512"))
    }


@dataclass
class Issuer:
    """Of tokens."""

    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "one"}))

    def key_set(self) -> str:
        return json.dumps(KeySet([self.key]).as_dict(private=False))

    def token(self, client: str, *, lives_s: float = 600.0, **claims: Any) -> str:
        now_s = int(datetime.now(UTC).timestamp())
        body = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": client,
            "iat": now_s,
            "exp": now_s + lives_s,
            **claims,
        }
        return jwt.encode({"alg": "RS256", "kid": "one"}, body, self.key)

    def for_librdkafka(self, client: str) -> tuple[str, float]:
        """What librdkafka's `oauth_cb` returns: the token, and when it ends."""
        return self.token(client), datetime.now(UTC).timestamp() + 600

    def unsigned(self, client: str) -> str:
        """`alg: none`."""
        parts = self.token(client).split(".")
        return f"{_text({'alg': 'none'})}.{parts[1]}."

    def signed_with_the_public_key(self, client: str) -> str:
        """HS256, with what everybody knows as the secret. joserfc refuses to make it."""
        signed = f"{_text({'alg': 'HS256', 'kid': 'one'})}.{self.token(client).split('.')[1]}"
        secret = self.key.as_pem(private=False)
        return f"{signed}.{_b64(hmac.new(secret, signed.encode(), 'sha256').digest())}"


def _text(part: dict[str, Any]) -> str:
    return _b64(json.dumps(part).encode())


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


@dataclass
class IdentifiedNode:
    kafka: KafkaCluster
    guarded: str  # the broker's listener with SASL
    gateway: GatewayProcess
    authority: Authority
    issuer: Issuer
    users_file: Path
    identities_file: Path
    key_set_file: Path
    sasl: str  # bootstrap addresses
    mutual: str
    certificates: Mapping[str, Issued]

    @property
    def opaque(self) -> str:
        return self.gateway.bootstrap

    def write_users(self, passwords: Mapping[str, str]) -> None:
        write_users(self.users_file, passwords)

    def write_identities(self, *, refused: str | None = None) -> None:
        replace(self.identities_file, identities(refused))


def write_users(file: Path, passwords: Mapping[str, str]) -> None:
    users = {name: hashed(password) for name, password in passwords.items()}
    replace(file, {"key": "0" * 32, "users": users})


def identities(refused: str | None = None) -> dict[str, Any]:
    rules: list[dict[str, Any]] = [
        *({"principal": client, "identity": client} for client in CLIENTS),
        {"pattern": r"CN=([a-z]+),OU=shop,C=DE", "identity": "$1"},
    ]
    if refused is not None:
        rules.insert(0, {"principal": refused, "refuse": True})
    known = {
        client: {"username": kafka_user(client), "password": kafka_password(client)}
        for client in CLIENTS
    }
    return {"rules": rules, "identities": known}


def replace(path: Path, content: Mapping[str, Any]) -> None:
    beside = path.with_suffix(".new")
    beside.write_text(yaml.safe_dump(dict(content)))
    beside.replace(path)


def guarded_listener(plain: int, controller: int, guarded: int) -> dict[str, str]:
    """Properties of a broker with two listeners on these ports: a plain one, and one with SASL."""
    advertised = f"CLIENT://127.0.0.1:{plain},GUARDED://127.0.0.1:{guarded}"
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    return {
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"{advertised},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": advertised,
        "listener.security.protocol.map": (
            "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT,GUARDED:SASL_PLAINTEXT"
        ),
        "listener.name.guarded.sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.guarded.scram-sha-256.sasl.jaas.config": login,
        "listener.name.guarded.scram-sha-512.sasl.jaas.config": login,
    }


def add_users(bootstrap_servers: str, passwords: Mapping[str, str]) -> None:
    """Creates users of the broker, with SCRAM-SHA-512."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for user, password in passwords.items():
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4_096)
        made = UserScramCredentialUpsertion(user, info, password.encode())
        admin.alter_user_scram_credentials([made])[user].result(ANSWER_S_MAX)


Guarded = tuple[KafkaCluster, str]


@contextmanager
def guarded_kafka() -> Iterator[Guarded]:
    """A broker with an authorizer, and the address of its listener with SASL. Clients of the test
    itself use the plain one, and may do everything.
    """
    first = free_ports(3)
    plain, controller, guarded = first, first + 1, first + 2
    properties = {
        **NEVER_KILLED,
        **guarded_listener(plain, controller, guarded),
        "listener.name.guarded.connections.max.reauth.ms": "4000",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:keyway",
        "delegation.token.secret.key": "of-all-brokers",
    }
    with KafkaCluster(1, properties=properties, ports=(plain,)) as cluster:
        own = {OWN_IDENTITY["username"]: OWN_IDENTITY["password"]}
        secrets = {kafka_user(client): kafka_password(client) for client in CLIENTS}
        add_users(cluster.bootstrap_servers, {**own, **secrets})
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        for client in CLIENTS:
            create_topic(cluster.bootstrap_servers, client)
            for kind in (ResourceType.TOPIC, ResourceType.GROUP):
                bindings = [
                    AclBinding(
                        kind,
                        client,
                        ResourcePatternType.LITERAL,
                        f"User:{kafka_user(client)}",
                        "*",
                        operation,
                        AclPermissionType.ALLOW,
                    )
                    for operation in _ALLOWED
                    if kind is ResourceType.TOPIC or operation is not AclOperation.WRITE
                ]
                for answer in admin.create_acls(bindings).values():
                    answer.result(ANSWER_S_MAX)
        yield cluster, f"127.0.0.1:{guarded}"


def sasl_listener(users: Path, rules: Path, keys: Path, **authentication: Any) -> dict[str, Any]:
    """On ports of its own. `authentication`: options beside the usual ones."""
    first = free_ports(_BROKER_IDS + 2)
    return {
        "name": "sasl",
        "bootstrap_port": first,
        "port_base": first + 1,
        "authentication": {
            "mechanisms": list(MECHANISMS),
            "users_file": str(users),
            "identities_file": str(rules),
            "oauthbearer": {
                "jwks_file": str(keys),
                "issuer": ISSUER,
                "audience": [AUDIENCE],
                "clock_skew_ms": 0,
            },
            **authentication,
        },
    }


@contextmanager
def identified_node(
    directory: Path, kafka: Guarded, **authentication: Any
) -> Iterator[IdentifiedNode]:
    """`authentication`: options of the listener with SASL beside the usual ones."""
    authority = Authority(directory / "authority")
    own = authority.issue("gateway")
    certificates = {
        client: authority.issue(client, subject=f"/C=DE/OU=shop/CN={client}") for client in CLIENTS
    }
    issuer = Issuer()
    users, rules, keys = (directory / name for name in ("users.yaml", "identities.yaml", "jwks"))
    keys.write_text(issuer.key_set())
    mutual = free_ports(_BROKER_IDS + 2)
    with_sasl = sasl_listener(users, rules, keys, **authentication)
    listeners = [
        with_sasl,
        {
            "name": "mutual",
            "bootstrap_port": mutual,
            "port_base": mutual + 1,
            "tls": {
                **own.as_options(),
                "client_auth": "required",
                "client_ca_file": str(authority.ca_file),
            },
            "authentication": {"mechanisms": ["CERTIFICATE"], "identities_file": str(rules)},
        },
    ]
    cluster, guarded = kafka
    gateway = GatewayProcess(
        directory / "gateway",
        guarded,
        listeners=listeners,
        groups=[{"match": "*", "auto_offset_reset": "earliest"}],
        sasl=OWN_IDENTITY,
    )
    node = IdentifiedNode(
        cluster,
        guarded,
        gateway,
        authority,
        issuer,
        users,
        rules,
        keys,
        sasl=f"127.0.0.1:{with_sasl['bootstrap_port']}",
        mutual=f"127.0.0.1:{mutual}",
        certificates=certificates,
    )
    node.write_users({client: gate_password(client) for client in (*CLIENTS, WITHOUT_IDENTITY)})
    node.write_identities()
    with gateway:
        yield node
