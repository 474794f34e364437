"""Keys of an issuer that publishes them over HTTP: read, changed, and away."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey

from gateway.core.identity.claims import BadToken, TokenRules
from gateway.listen import bearer_tokens
from gateway.listen.bearer_tokens import BearerTokens
from gateway.listen.settings import BearerSettings
from tests.rig.identified_node import AUDIENCE, ISSUER, Issuer


class KeyServer(ThreadingHTTPServer):
    body = b""
    status = 200
    asked = 0


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, KeyServer)
        self.server.asked += 1
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[KeyServer]:
    with KeyServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join(30)


def tokens_of(server: KeyServer) -> BearerTokens:
    settings = BearerSettings(
        rules=TokenRules(issuer=ISSUER, audiences=(AUDIENCE,)),
        algorithms=("RS256",),
        jwks_url=f"http://127.0.0.1:{server.server_port}/jwks",
    )
    return BearerTokens(settings, "listen.authentication.oauthbearer")


async def problem_of(tokens: BearerTokens) -> str | None:
    """With the keys as they are published now."""
    tokens._fetch_not_before = 0.0
    await tokens._fetch()
    return tokens.problem


def test_keys_are_fetched_kept_and_not_asked_for_at_every_token(server: KeyServer) -> None:
    issuer, other = Issuer(), Issuer(RSAKey.generate_key(2048, {"kid": "two"}))
    server.body = issuer.key_set().encode()

    async def main() -> None:
        tokens = tokens_of(server)
        bearer, signed_by = await tokens.judged(issuer.token("anna"))
        assert bearer.principal == "anna"
        assert tokens.knows(signed_by)
        assert (tokens.other_keys(), tokens.other_keys()) == (True, False)
        for _ in range(20):  # a stranger may name any key
            with pytest.raises(BadToken):
                await tokens.judged(issuer.token("anna").replace(".", ".x", 1))
        assert server.asked == 1
        server.status = 500
        assert await problem_of(tokens) is not None
        assert (await tokens.judged(issuer.token("anna")))[0].principal == "anna", "kept"
        server.status, server.body = 200, other.key_set().encode()
        assert await problem_of(tokens) is None
        assert not tokens.knows(signed_by), "the issuer has withdrawn it"
        with pytest.raises(BadToken):
            await tokens.judged(issuer.token("anna"))

    asyncio.run(main())


def test_the_same_keys_again_are_no_others(
    server: KeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger's token with another kid had all sessions judged again, every ten seconds."""
    issuer, other = Issuer(), Issuer(RSAKey.generate_key(2048, {"kid": "two"}))
    server.body = issuer.key_set().encode()
    made = []
    thumbprint = RSAKey.thumbprint

    def counted(key: RSAKey) -> str:
        made.append(key)
        return thumbprint(key)

    monkeypatch.setattr(RSAKey, "thumbprint", counted)

    async def main() -> None:
        tokens = tokens_of(server)
        _, signed_by = await tokens.judged(issuer.token("anna"))
        assert tokens.other_keys()
        strange = jwt.encode({"alg": "RS256", "kid": "nobody's"}, {}, issuer.key)
        for _ in range(3):
            tokens._fetch_not_before = 0.0
            with pytest.raises(BadToken):
                await tokens.judged(strange)
            assert not tokens.other_keys()
        assert server.asked == 4
        made.clear()
        assert all(tokens.knows(signed_by) for _ in range(1_000))
        assert not made, "they are made when the keys are read"
        server.body = other.key_set().encode()
        assert await problem_of(tokens) is None
        assert tokens.other_keys()

    asyncio.run(main())


def test_an_answer_that_is_none(server: KeyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bearer_tokens, "KEY_SET_BYTES_MAX", 1_000)

    async def main() -> None:
        for body in (b"", b"{}", b'{"keys": []}', b'{"keys": [{"kty": "oct"}]}', b"x" * 2_000):
            server.body = body
            tokens = tokens_of(server)
            assert await problem_of(tokens) is not None, body
            assert not tokens.keys

    asyncio.run(main())
