"""Clients that try to get in, or to be somebody else, at listeners that authenticate them."""

from __future__ import annotations

import secrets
import ssl
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey
from playwright.sync_api import expect

from gateway.core.cluster.scram import ScramClient
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.frames import request_frame
from gateway.core.wire.schema import Message
from tests.rig.browser import CHROMIUM, chromium, tab
from tests.rig.certificates import Authority, Issued
from tests.rig.clients.wire_client import WireClient
from tests.rig.identified_node import (
    CLIENTS,
    WITHOUT_IDENTITY,
    Guarded,
    IdentifiedNode,
    gate_password,
    identified_node,
    kafka_password,
    kafka_user,
)
from tests.rig.patience import patient_s, wait_until

pytestmark = pytest.mark.integration

FAILED = int(ErrorCode.SASL_AUTHENTICATION_FAILED)
DELAY_S = 0.3
GONE_S = 20.0  # two looks, and the time for answers that are under way
SHA512 = "SCRAM-SHA-512"


@pytest.fixture(scope="module")
def node(
    guarded_broker: Guarded, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[IdentifiedNode]:
    directory = tmp_path_factory.mktemp("attacks")
    with identified_node(directory, guarded_broker, failed_delay_ms=int(DELAY_S * 1000)) as node:
        yield node


def handshake(line: WireClient, mechanism: str) -> Message:
    return line.call(ApiKey.SASL_HANDSHAKE, 1, {"Mechanism": mechanism})


def token(line: WireClient, data: bytes) -> Message:
    return line.call(ApiKey.SASL_AUTHENTICATE, 2, {"AuthBytes": data})


def plain(line: WireClient, user: str, password: str) -> Message:
    assert handshake(line, "PLAIN")["ErrorCode"] == 0
    return token(line, f"\0{user}\0{password}".encode())


def bearer(line: WireClient, signed: str) -> Message:
    assert handshake(line, "OAUTHBEARER")["ErrorCode"] == 0
    return token(line, f"n,,\x01auth=Bearer {signed}\x01\x01".encode())


def logged_in(node: IdentifiedNode, client: str) -> WireClient:
    line = WireClient(node.sasl)
    assert plain(line, client, gate_password(client))["ErrorCode"] == 0
    return line


def errors_of(line: WireClient) -> list[int]:
    """Of the topics of both clients."""
    asked: Message = {"Topics": [{"Name": name} for name in CLIENTS]}
    answer = line.call(ApiKey.METADATA, 9, {**asked, "AllowAutoTopicCreation": False})
    return [
        {topic["Name"]: topic["ErrorCode"] for topic in answer["Topics"]}[name] for name in CLIENTS
    ]


def test_nothing_is_answered_before_the_login(node: IdentifiedNode) -> None:
    for key, version in ((ApiKey.METADATA, 9), (ApiKey.LIST_GROUPS, 4), (ApiKey.SHARE_FETCH, 1)):
        with WireClient(node.sasl) as line:
            asked = {"ClientSoftwareName": "tests", "ClientSoftwareVersion": "1"}
            assert line.call(ApiKey.API_VERSIONS, 3, asked)["ErrorCode"] == 0
            line.send(key, version, {})
            assert line.closed_within(patient_s(10))
    with WireClient(node.sasl) as line:
        handshake(line, "PLAIN")
        line.send(ApiKey.METADATA, 9, {})
        assert line.closed_within(patient_s(10)), "nor in the middle of it"
    with WireClient(node.sasl) as line:
        handshake(line, "PLAIN")
        line.send(ApiKey.SASL_AUTHENTICATE, 2, {"AuthBytes": b"\0anna\0wrong"})
        line.send(ApiKey.METADATA, 9, {})
        line.receive_frame()
        assert line.closed_within(patient_s(10)), "nor behind one that fails"


def test_nobody_takes_a_credential_of_kafka_along(node: IdentifiedNode) -> None:
    """A delegation token of its identity would outlive the client's own entry, and be good at Kafka
    itself.
    """
    key = int(ApiKey.CREATE_DELEGATION_TOKEN)
    lifetime_ms = 60_000
    asked = request_frame(key, 1, 7, "tests", bytes(4) + lifetime_ms.to_bytes(8, "big"))
    with WireClient(node.guarded) as direct:
        user = kafka_user("anna")
        scram = ScramClient("sha512", user, kafka_password("anna"), secrets.token_hex(8))
        assert handshake(direct, SHA512)["ErrorCode"] == 0
        challenge = token(direct, scram.first())["AuthBytes"]
        assert token(direct, scram.final(challenge, scram.source(challenge).keys())[0])
        direct.send_bytes(asked)
        made = direct.receive_frame()
        assert made[4:6] == bytes(2), "the broker makes them"
        assert user.encode() in made
    with logged_in(node, "anna") as line:
        asks = {"ClientSoftwareName": "tests", "ClientSoftwareVersion": "1"}
        offered = {row["ApiKey"] for row in line.call(ApiKey.API_VERSIONS, 3, asks)["ApiKeys"]}
        assert offered.isdisjoint({key, int(ApiKey.DESCRIBE_DELEGATION_TOKEN)})
        line.send_bytes(asked)
        assert line.closed_within(patient_s(10))


@pytest.mark.deep
def test_a_wrong_password_tells_nothing_and_takes_its_time(node: IdentifiedNode) -> None:
    for user, password in (
        ("anna", "wrong"),
        ("nobody", "wrong"),
        ("anna", gate_password("bert")),
        (kafka_user("anna"), kafka_password("anna")),
        (WITHOUT_IDENTITY, gate_password(WITHOUT_IDENTITY)),
    ):
        with WireClient(node.sasl) as line:
            began = time.monotonic()
            answer = plain(line, user, password)
            assert time.monotonic() - began >= DELAY_S
            told = (answer["ErrorCode"], answer["ErrorMessage"], answer["AuthBytes"])
            assert told == (FAILED, "Authentication failed", b"")
            assert line.closed_within(patient_s(10))
    assert "wrong" not in [word.strip("'\"") for word in node.gateway.log_text().split()]
    assert gate_password("anna") not in node.gateway.log_text()


@pytest.mark.deep
def test_an_unknown_name_looks_like_a_known_one(node: IdentifiedNode) -> None:
    def challenge(user: str) -> tuple[bytes, bytes]:
        with WireClient(node.sasl) as line:
            handshake(line, SHA512)
            answer = token(line, ScramClient("sha512", user, "x", "nonce").first())
            assert answer["ErrorCode"] == 0
            _, salt, iterations = answer["AuthBytes"].split(b",")
            return salt, iterations

    known, unknown = challenge("anna"), challenge("nobody")
    assert (len(unknown[0]), unknown[1]) == (len(known[0]), known[1])
    assert challenge("nobody") == unknown, "the same at every try"
    assert challenge("anna") == known


def test_a_replayed_message_of_scram(node: IdentifiedNode) -> None:
    scram = ScramClient("sha512", "anna", gate_password("anna"), "nonce-of-anna")
    with WireClient(node.sasl) as line:
        handshake(line, SHA512)
        challenge = token(line, scram.first())["AuthBytes"]
        final, _ = scram.final(challenge, scram.source(challenge).keys())
        assert token(line, final)["ErrorCode"] == 0
    with WireClient(node.sasl) as line:
        handshake(line, SHA512)
        token(line, scram.first())
        assert token(line, final)["ErrorCode"] == FAILED
        assert line.closed_within(patient_s(10))


def test_steps_out_of_order(node: IdentifiedNode) -> None:
    with WireClient(node.sasl) as line:
        answer = token(line, b"\0anna\0" + gate_password("anna").encode())
        assert answer["ErrorCode"] == ErrorCode.ILLEGAL_SASL_STATE
        assert line.closed_within(patient_s(10))
    with WireClient(node.sasl) as line:
        answer = handshake(line, "GSSAPI")
        assert answer["ErrorCode"] == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert "PLAIN" in answer["Mechanisms"]
        assert line.closed_within(patient_s(10))
    with WireClient(node.sasl) as line:
        handshake(line, "PLAIN")
        line.send_bytes((600_000).to_bytes(4, "big") + b"\0\x24\0\2" + bytes(4))
        assert line.closed_within(patient_s(10)), "a long token is not waited for"


def forged(node: IdentifiedNode) -> dict[str, str]:
    issuer = node.issuer
    claims: dict[str, Any] = jwt.decode(issuer.token("anna"), issuer.key).claims
    stranger = RSAKey.generate_key(2048, {"kid": "one"})
    return {
        "unsigned": issuer.unsigned("anna"),
        "the public key as a secret": issuer.signed_with_the_public_key("anna"),
        "another key": jwt.encode({"alg": "RS256", "kid": "one"}, claims, stranger),
        "another algorithm": jwt.encode(
            {"alg": "RS512", "kid": "one"}, claims, issuer.key, algorithms=["RS512"]
        ),
        "expired": issuer.token("anna", lives_s=-10),
        "another audience": issuer.token("anna", aud="other"),
        "another issuer": issuer.token("anna", iss="https://other"),
        "a changed claim": _changed(issuer.token("bert"), issuer.token("anna")),
        "no rule": issuer.token(WITHOUT_IDENTITY),
        "nonsense": "a.b.c",
    }


def _changed(one: str, other: str) -> str:
    """The claims of one token with the signature of another."""
    head, _, signature = one.split(".")
    return f"{head}.{other.split('.')[1]}.{signature}"


def test_tokens_that_are_not_good(node: IdentifiedNode) -> None:
    for what, signed in forged(node).items():
        with WireClient(node.sasl) as line:
            answer = bearer(line, signed)
            assert (answer["ErrorCode"], answer["ErrorMessage"]) == (
                FAILED,
                "Authentication failed",
            ), what
            assert line.closed_within(patient_s(10))
    with WireClient(node.sasl) as line:
        answer = bearer(line, node.issuer.token("anna"))
        assert answer["ErrorCode"] == 0
        assert 0 < answer["SessionLifetimeMs"] <= 600_000


@pytest.mark.deep
def test_a_connection_ends_with_its_token(node: IdentifiedNode) -> None:
    with WireClient(node.sasl) as short, WireClient(node.sasl) as renewed:
        assert bearer(short, node.issuer.token("anna", lives_s=4))["ErrorCode"] == 0
        assert bearer(renewed, node.issuer.token("anna", lives_s=4))["ErrorCode"] == 0
        assert errors_of(short)[0] == 0
        assert bearer(renewed, node.issuer.token("anna"))["ErrorCode"] == 0
        assert short.closed_within(patient_s(15))
        assert errors_of(renewed)[0] == 0


def test_nobody_goes_on_as_somebody_else(node: IdentifiedNode) -> None:
    with logged_in(node, "anna") as line:
        assert plain(line, "anna", gate_password("anna"))["ErrorCode"] == 0, "again as herself"
        assert errors_of(line)[0] == 0
        answer = plain(line, "bert", gate_password("bert"))
        assert answer["ErrorCode"] == FAILED
        assert line.closed_within(patient_s(10))
    with logged_in(node, "anna") as line:
        assert handshake(line, SHA512)["ErrorCode"] == ErrorCode.ILLEGAL_SASL_STATE
        assert line.closed_within(patient_s(10)), "another mechanism"


@pytest.mark.deep
def test_two_clients_interleaved_each_as_itself(node: IdentifiedNode) -> None:
    denied = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with logged_in(node, "anna") as anna, logged_in(node, "bert") as bert:
        for _ in range(50):
            assert errors_of(anna) == [0, denied]
            assert errors_of(bert) == [denied, 0]


def certified(node: IdentifiedNode, certificate: Issued) -> WireClient:
    line = WireClient(node.mutual)
    context = node.authority.trusting(certificate)
    line._line = context.wrap_socket(line._line, server_hostname="127.0.0.1")
    return line


def test_certificates(node: IdentifiedNode) -> None:
    anna_shows, bert_shows = node.certificates["anna"], node.certificates["bert"]
    with certified(node, anna_shows) as anna, certified(node, bert_shows) as bert:
        denied = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        for _ in range(10):
            assert errors_of(anna) == [0, denied]
            assert errors_of(bert) == [denied, 0]
        answer = handshake(anna, SHA512)
        assert answer["ErrorCode"] == ErrorCode.ILLEGAL_SASL_STATE, "SASL does not pass through"
        assert errors_of(anna) == [0, denied]
    stranger = Authority(node.gateway.log.parent / "stranger")
    forged = stranger.issue("anna", subject="/C=DE/OU=shop/CN=anna")
    with pytest.raises((ssl.SSLError, ConnectionError)), certified(node, forged) as line:
        errors_of(line)
    unknown = node.authority.issue("unknown", subject="/C=DE/OU=other/CN=anna")
    with certified(node, unknown) as line:
        assert line.closed_within(patient_s(10)), "no rule for this subject"


def test_who_is_revoked_is_let_go(node: IdentifiedNode) -> None:
    all_of_them = {client: gate_password(client) for client in (*CLIENTS, WITHOUT_IDENTITY)}
    with logged_in(node, "anna") as anna, logged_in(node, "bert") as bert:
        node.users_file.write_text("users: {anna: [")
        wait_until(
            lambda: "file_not_reloaded" in node.gateway.log_text(),
            what="the file is refused",
            deadline_s=GONE_S,
        )
        assert errors_of(anna)[0] == 0, "a broken file changes nothing"
        node.write_users({name: user for name, user in all_of_them.items() if name != "anna"})
        assert anna.closed_within(patient_s(GONE_S))
        assert errors_of(bert)[1] == 0
        with WireClient(node.sasl) as line:
            assert plain(line, "anna", gate_password("anna"))["ErrorCode"] == FAILED
        node.write_users({**all_of_them, "bert": "another"})
        assert bert.closed_within(patient_s(GONE_S)), "another password"
    node.write_users(all_of_them)
    anna_shows, bert_shows = node.certificates["anna"], node.certificates["bert"]
    with certified(node, anna_shows) as anna, certified(node, bert_shows) as bert:
        assert errors_of(anna)[0] == 0
        node.write_identities(refused="CN=anna,OU=shop,C=DE")
        assert anna.closed_within(patient_s(GONE_S))
        assert errors_of(bert)[1] == 0
    node.write_identities()
    key_set = node.key_set_file.read_text()
    with WireClient(node.sasl) as line:
        assert bearer(line, node.issuer.token("anna"))["ErrorCode"] == 0
        other = type(node.issuer)().key_set()
        beside = node.key_set_file.with_suffix(".new")
        beside.write_text(other)
        beside.replace(node.key_set_file)
        assert line.closed_within(patient_s(GONE_S)), "the key of its token has gone"
    node.key_set_file.write_text(key_set)


def logins(node: IdentifiedNode) -> dict[tuple[str, str], int]:
    """Of the listener with SASL, by mechanism and outcome."""
    listed = httpx.get(f"http://{node.gateway.admin}/v1/listeners").json()["listeners"]
    (found,) = [row for row in listed if row["listener"] == "sasl"]
    return {(row["mechanism"], row["outcome"]): row["count"] for row in found["logins"]}


def test_operators_see_what_becomes_of_logins_and_no_secret(node: IdentifiedNode) -> None:
    before = logins(node)
    with logged_in(node, "anna"), WireClient(node.sasl) as wrong, WireClient(node.sasl) as stranger:
        plain(wrong, "anna", "hunter2")
        bearer(stranger, "a.b.c")
        now = logins(node)
    for outcome in (
        ("PLAIN", "accepted"),
        ("PLAIN", "wrong_credentials"),
        ("OAUTHBEARER", "token"),
    ):
        assert now[outcome] == before.get(outcome, 0) + 1, outcome
    url = f"http://{node.gateway.admin}"
    shown = httpx.get(f"{url}/v1/listeners").text + httpx.get(f"{url}/metrics").text
    for secret in (gate_password("anna"), kafka_password("anna"), kafka_user("anna"), "hunter2"):
        assert secret not in shown


@pytest.mark.deep
def test_the_dashboard_shows_who_authenticates(node: IdentifiedNode) -> None:
    with WireClient(node.sasl) as wrong:
        plain(wrong, "anna", "hunter2")
    url = f"http://{node.gateway.admin}"
    if not CHROMIUM.exists():
        pytest.skip(f"no {CHROMIUM}: make setup installs it as root (apt-get install chromium)")
    with chromium() as browser, tab(browser, url) as opened:
        opened.open("clients")
        rows = opened.page.get_by_role("row")
        sasl = rows.filter(has=opened.page.get_by_role("rowheader", name="sasl"))
        expect(sasl).to_contain_text("OAUTHBEARER")
        expect(sasl).to_contain_text("wrong credentials")
        mutual = rows.filter(has=opened.page.get_by_role("rowheader", name="mutual"))
        expect(mutual).to_contain_text("CERTIFICATE")
        expect(mutual).to_contain_text("until 20")
        opaque = rows.filter(has=opened.page.get_by_role("rowheader", name="plain"))
        expect(opaque).to_contain_text("Kafka")
        assert not opened.inaccessible()
        assert not opened.violations
