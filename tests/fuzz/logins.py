"""Logins that the gateway judges itself, from clients that know the password and from strangers:
messages damaged, in any order, on one connection. Nobody gets in as somebody else.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random

from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

from gateway.core.forwarding.api_counts import ApiCounts
from gateway.core.forwarding.connection_state import ConnectionState
from gateway.core.forwarding.effects import Intercepted, ToUpstream
from gateway.core.forwarding.served_apis import rules
from gateway.core.identity.claims import BadToken, Bearer, TokenRules
from gateway.core.identity.credentials import HASHES, Users, derived
from gateway.core.identity.exchange import (
    Challenge,
    CheckPassword,
    CheckToken,
    Denied,
    Exchange,
    Outcome,
    Proven,
    State,
)
from gateway.core.wire.apis import ApiKey
from gateway.listen.bearer_tokens import BearerTokens
from gateway.listen.client_login import LOGIN_APIS
from gateway.listen.settings import BearerSettings
from tests.fuzz.corpus import Exchange as Recorded
from tests.fuzz.mutate import chunks, framed, mutated

NAME, PASSWORD, OTHER = "anna", b"pizza-4-all", "bert"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SALT, ITERATIONS = b"salt-of-sixteen!", 1  # a stretched password takes most of an input's time
LOGINS_MAX = 4  # on one connection
ISSUER, AUDIENCE = "https://issuer.example", "keyway"
NOW_S = 1_700_000_000.0
BEHIND_THE_LOGIN = rules((ApiKey.SHARE_FETCH,), terminated=True, login=True)


def logins(corpus: Sequence[Recorded], random: Random) -> None:
    """Several logins on one connection. `checked` is what the shell would find."""
    exchange, users = Exchange(MECHANISMS), _users()
    stranger = random.random() < 0.5
    proven: str | None = None
    for _ in range(random.randint(1, LOGINS_MAX)):
        mechanism = random.choice((*MECHANISMS, "GSSAPI", ""))
        refused = exchange.handshake(mechanism) if random.random() < 0.9 else None
        client = _Client(mechanism, stranger, corpus, random)
        challenge = b""
        for _ in range(random.choice((1, 2, 2, 3))):
            outcome = exchange.token(client.message(challenge), users, "nonce-of-the-node")
            outcome = _checked(exchange, outcome, random)
            challenge = outcome.data if isinstance(outcome, Challenge) else b""
            if isinstance(outcome, Denied):
                assert PASSWORD.decode() not in outcome.detail
                assert exchange.state is State.RESTING
            elif isinstance(outcome, Proven):
                assert not stranger, "it does not know the password"
                assert refused is None, "the mechanism is not offered"
                assert outcome.principal == NAME
                assert proven in (None, NAME)
                proven = outcome.principal


def _checked(exchange: Exchange, outcome: Outcome, random: Random) -> Outcome:
    if isinstance(outcome, CheckPassword):
        right = outcome.right()
        assert right == ((outcome.name, outcome.password) == (NAME, PASSWORD))
        return exchange.checked(outcome.name if right else None)
    if isinstance(outcome, CheckToken):
        return exchange.checked(None)  # `tokens` has these
    if random.random() < 0.05 and exchange.state is State.LAST:
        return exchange.handshake("PLAIN") or outcome  # in the middle of a login
    return outcome


class _Client:
    """Half of its messages are as they should be."""

    def __init__(
        self, mechanism: str, stranger: bool, corpus: Sequence[Recorded], random: Random
    ) -> None:
        self._mechanism = mechanism
        self._password = b"hunter2" if stranger else PASSWORD
        self._name = random.choice((NAME, NAME, OTHER, "nobody"))
        self._other = random.choice(corpus).request
        self._random = random
        self._bare = f"n={self._name},r=nonce-of-the-client"

    def message(self, challenge: bytes) -> bytes:
        whole = self._final(challenge) if challenge else self._first()
        damaged = self._random.random() < 0.5
        return mutated(whole, self._other, self._random) if damaged else whole

    def _first(self) -> bytes:
        if self._mechanism in HASHES:
            return f"n,,{self._bare}".encode()
        if self._mechanism == "OAUTHBEARER":
            return b"n,,\x01auth=Bearer a.b.c\x01\x01"
        return b"\0%b\0%b" % (self._name.encode(), self._password)

    def _final(self, challenge: bytes) -> bytes:
        """The proof of SCRAM."""
        hash_name = HASHES.get(self._mechanism, "sha256")
        fields = dict(part.split("=", 1) for part in challenge.decode().split(","))
        without_proof = f"c=biws,r={fields['r']}"
        signed = f"{self._bare},{challenge.decode()},{without_proof}".encode()
        salt = base64.b64decode(fields["s"])
        salted = hashlib.pbkdf2_hmac(hash_name, self._password, salt, int(fields["i"]))
        key = hmac.new(salted, b"Client Key", hash_name).digest()
        stored = hashlib.new(hash_name, key).digest()
        signature = hmac.new(stored, signed, hash_name).digest()
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


@cache
def _users() -> Users:
    secrets = {
        mechanism: derived(hash_name, PASSWORD, SALT, ITERATIONS)
        for mechanism, hash_name in HASHES.items()
    }
    others = {
        mechanism: derived(hash_name, b"another", SALT, ITERATIONS)
        for mechanism, hash_name in HASHES.items()
    }
    return Users({NAME: secrets, OTHER: others}, b"k" * 16)


def tokens(corpus: Sequence[Recorded], random: Random) -> None:
    """JWTs: a good one, one that is over, one of another issuer's key; most of them damaged."""
    judge, made = _issued()
    signed, good = random.choice(made)
    damaged = random.random() < 0.8
    if damaged:
        signed = mutated(signed, random.choice(corpus).request, random)
    bearer = _judged(judge, signed.decode("utf-8", "replace"))
    if bearer is None:
        assert damaged or not good, "a good token is refused"
    else:
        assert good, "another key, or over"
        assert bearer.principal == NAME


def _judged(judge: BearerTokens, token: str) -> Bearer | None:
    """None: it is refused. A file of keys is not waited for."""
    judging = judge.judged(token)
    try:
        judging.send(None)
    except StopIteration as done:
        bearer: Bearer = done.value[0]
        return bearer
    except BadToken:
        return None
    raise AssertionError("it waits")


@cache
def _issued() -> tuple[BearerTokens, list[tuple[bytes, bool]]]:
    key, stranger = (RSAKey.generate_key(2048, {"kid": "one"}) for _ in range(2))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "jwks"
        file.write_text(json.dumps(KeySet([key]).as_dict(private=False)))
        settings = BearerSettings(
            rules=TokenRules(issuer=ISSUER, audiences=(AUDIENCE,)),
            algorithms=("RS256",),
            jwks_file=file,
        )
        judge = BearerTokens(settings, "the fuzz", lambda: NOW_S)
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": NAME, "exp": NOW_S + 600}
    head = {"alg": "RS256", "kid": "one"}
    made = [
        (jwt.encode(head, claims, key), True),
        (jwt.encode(head, {**claims, "exp": NOW_S - 600}, key), False),
        (jwt.encode(head, claims, stranger), False),
    ]
    return judge, [(text.encode(), good) for text, good in made]


def before_login(corpus: Sequence[Recorded], random: Random) -> None:
    """Traffic of clients on a listener that authenticates them, damaged and whole: before the
    login nothing of it goes upstream, and only a login is answered.
    """
    state = ConnectionState(BEHIND_THE_LOGIN, ApiCounts())
    for _ in range(random.randint(1, 4)):
        request = random.choice(corpus).request
        if random.random() < 0.7:
            request = mutated(request, random.choice(corpus).request, random)
        if random.random() < 0.5:  # as one of the three that are answered
            request = random.choice(LOGIN_APIS).to_bytes(2, "big") + request[2:]
        for piece in chunks(framed(request, random), random):
            for effect in state.from_client(piece):
                assert not isinstance(effect, ToUpstream), "before the login"
                if isinstance(effect, Intercepted):
                    key = int.from_bytes(effect.payload[:2], "big")
                    assert key in LOGIN_APIS, f"API {key} before the login"
    for effect in state.client_ended():
        assert not isinstance(effect, ToUpstream), "before the login"
