"""A token goes to nobody who has not proved to be the node that published the address; questions
between two nodes over real sockets.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request

from gateway.admin.peers import Peers, Question, Reply, proof, question_of
from gateway.admin.tokens import Token
from gateway.core.routing.ownership import Node
from gateway.routing.owners import SharedOwners
from gateway.routing.shared_table import NodeRow

TOKEN = Token("ann", "keyway_secret")


class Owners:
    node_id = "a"

    def __init__(self, address: str, alive_ms: int = 5_000) -> None:
        row = NodeRow(
            node=Node(id="b"),
            alive_ms=alive_ms,
            agreed={},
            facts={"admin": address},
            incarnation="i1",
        )
        self.rows = (row,)


@contextmanager
def listening(
    key: bytes, incarnation: str, of_address: str = "", *, keeps_open: bool = True
) -> Iterator[tuple[str, list[str]]]:
    """A program that answers for a proof with this key; the address, and what it was sent."""
    sent: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1" if keeps_open else "HTTP/1.0"

        def do_GET(self) -> None:
            sent.append(f"{self.path} {self.headers['Authorization']}")
            asked = parse_qs(urlsplit(self.path).query)
            body: dict[str, Any] = {"groups": []}
            if "nonce" in asked:
                at = of_address or address
                made = proof(key, "b", incarnation, at, asked["nonce"][0])
                body = {"node": "b", "proof": made}
            answer = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    address = f"127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield address, sent
    finally:
        server.shutdown()
        server.server_close()


def asked(address: str, token: Token | None = TOKEN, alive_ms: int = 5_000) -> list[Reply]:
    async def work() -> list[Reply]:
        peers = Peers(cast(SharedOwners, Owners(address, alive_ms)))
        scope = {
            "type": "http",
            "method": "GET",
            "raw_path": b"/v1/groups",
            "query_string": b"limit=3",
            "headers": [],
            "state": {"token": token},
        }
        return await peers.ask_all(question_of(Request(scope)))

    return asyncio.run(work())


def test_no_two_questions_have_one_proof() -> None:
    one = proof(b"key", "a\nb", "c", "d", "e")
    assert one != proof(b"key", "a", "b\nc", "d", "e")
    assert one != proof(b"key", "a", "b", "c\nd", "e")


def test_a_node_that_proves_itself_is_asked_with_the_token() -> None:
    with listening(TOKEN.sha256, "i1") as (address, sent):
        (reply,) = asked(address)
    assert (reply.status, reply.answer) == (200, {"groups": []})
    assert sent[0].endswith("caller=ann None"), "no token with the question for the proof"
    assert sent[1:] == ["/v1/groups?limit=3 Bearer keyway_secret"]


def test_nobody_else_gets_the_token() -> None:
    for key, incarnation, of_address in (
        (b"", "i1", ""),  # does not know the token
        (TOKEN.sha256, "i0", ""),  # an earlier process, or another node at this port
        (TOKEN.sha256, "i1", "10.0.0.9:9180"),  # passes the question on to the right node
    ):
        with listening(key, incarnation, of_address) as (address, sent):
            (reply,) = asked(address)
        assert reply.status == 0
        assert "does not prove to be this node" in reply.title
        assert len(sent) == 1
        assert "keyway_secret" not in str(sent)
        assert "keyway_secret" not in reply.title


def test_a_proof_holds_for_its_connection_alone() -> None:
    """Whoever takes the port of a node that has crashed gets no token."""
    with listening(TOKEN.sha256, "i1", keeps_open=False) as (address, sent):
        (reply,) = asked(address)
    assert reply.status == 0
    assert "closed behind its proof" in reply.title
    assert len(sent) == 1, "nothing on a second connection"


def test_each_question_is_asked_behind_a_proof_of_its_own() -> None:
    async def work(peers: Peers) -> Reply:
        (row,) = peers.others()
        return await peers.ask(row, Question("GET", "/v1/groups", token=TOKEN))

    with listening(TOKEN.sha256, "i1") as (address, sent):
        peers = Peers(cast(SharedOwners, Owners(address)))
        assert [asyncio.run(work(peers)).status for _ in range(2)] == [200, 200]
    assert ["nonce" in line for line in sent] == [True, False] * 2


def test_a_node_that_is_gone_is_not_asked() -> None:
    with listening(TOKEN.sha256, "i1") as (address, sent):
        assert asked(address, alive_ms=-1) == []
    assert sent == []


def test_where_nobody_listens_the_reason_is_told() -> None:
    with listening(TOKEN.sha256, "i1") as (address, _):
        pass
    (reply,) = asked(address)
    assert (reply.node, reply.status) == ("b", 0)
    assert reply.title


def test_a_token_is_in_no_text_of_it() -> None:
    assert "keyway_secret" not in repr(TOKEN)
