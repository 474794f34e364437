"""Questions of one node to the REST of the others, with the caller's own token.

A node is asked at the address that it published in the shared Redis. Before a token goes there, it
has to prove that it is the process that wrote this row, and that its own configuration has this
token: it signs a random number and its incarnation with the token's hash. So no other program that
listens at this address, and nobody who can only write into Redis, is ever sent a token.
A proof holds for the connection it came on, and each question has one of its own: behind the next
connection there may be whoever took the port of a node that has crashed.
A node with `admin.tls` says so there, and has to show a certificate for that address, too. Neither
proxies of the environment nor redirections are followed.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from gateway.admin.limits import PEER_ANSWER_BYTES_MAX, PEER_S_MAX, PEERS_MAX
from gateway.admin.tokens import Token
from gateway.routing.build import ADMIN_TLS
from gateway.routing.owners import SharedOwners
from gateway.routing.shared_table import NodeRow

if TYPE_CHECKING:
    import httpx

NODE_ONLY = "keyway-node-only"  # the node that is asked about itself alone
PROOF = "/v1/nodes/proof"


@dataclass(frozen=True, slots=True)
class Reply:
    """`status` 0: the node did not answer, and `title` says why. `title`: of a refusal."""

    node: str
    status: int
    title: str = ""
    answer: Any = None


@dataclass(frozen=True, slots=True)
class Question:
    """`target`: path and query, quoted. `seconds_max` None: that of the method."""

    method: str
    target: str
    body: bytes = b""
    token: Token | None = None
    seconds_max: float | None = None


def question_of(request: Request, body: bytes = b"") -> Question:
    """The same as the caller's."""
    path = request.scope["raw_path"].decode("ascii")
    query = request.scope["query_string"].decode("ascii")
    target = f"{path}?{query}" if query else path
    return Question(request.method, target, body, request.state.token)


@dataclass(slots=True)
class Peers:
    owners: SharedOwners
    trust: Callable[[], ssl.SSLContext] = ssl.create_default_context  # of nodes with HTTPS
    _trusted: ssl.SSLContext | None = None  # read at the first question

    def others(self) -> Sequence[NodeRow]:
        """The live ones."""
        rows = self.owners.rows
        alive = [row for row in rows if row.alive_ms > 0 and row.node.id != self.owners.node_id]
        return alive[:PEERS_MAX]

    async def ask_all(self, question: Question) -> list[Reply]:
        return list(await asyncio.gather(*(self.ask(row, question) for row in self.others())))

    async def ask(self, row: NodeRow, question: Question) -> Reply:
        """Asks this node alone. Raises nothing."""
        import httpx  # only several nodes need it

        name, token, body = row.node.id, question.token, question.body
        seconds = question.seconds_max or PEER_S_MAX[question.method]
        try:
            async with asyncio.timeout(seconds):
                scheme = "https" if row.facts.get(ADMIN_TLS) else "http"
                address = f"{scheme}://{row.facts['admin']}"
                headers = {NODE_ONLY: name}
                if token is not None:
                    headers["authorization"] = f"Bearer {token.text}"
                if body:
                    headers["content-type"] = "application/json"
                url = address + question.target
                async with self._connection() as connection:
                    await _prove(connection, row, address, token)
                    asked = connection.build_request(
                        question.method,
                        url,
                        headers=headers,
                        content=body,
                        extensions={"trace": _on_no_other_connection},
                    )
                    status, said = await _send(connection, asked)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, OSError) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            return Reply(name, 0, reason)
        except TimeoutError:
            return Reply(name, 0, f"no answer within {seconds:g} s")
        if 200 <= status < 300:
            return Reply(name, status, answer=said)
        return Reply(name, status, str(said.get("title", status)))

    def _connection(self) -> httpx.AsyncClient:
        """For one question."""
        import httpx

        if self._trusted is None:
            self._trusted = self.trust()
        return httpx.AsyncClient(
            trust_env=False,
            follow_redirects=False,
            timeout=max(PEER_S_MAX.values()),
            verify=self._trusted,
            limits=httpx.Limits(max_connections=1),
        )


async def _prove(
    connection: httpx.AsyncClient, row: NodeRow, address: str, token: Token | None
) -> None:
    """Raises ValueError, httpx.HTTPError."""
    nonce = secrets.token_hex(16)
    caller = "" if token is None else f"&caller={token.name}"
    url = f"{address}{PROOF}?nonce={nonce}{caller}"
    asked = connection.build_request("GET", url, headers={NODE_ONLY: row.node.id})
    status, said = await _send(connection, asked)
    key = b"" if token is None else token.sha256
    wanted = proof(key, row.node.id, row.incarnation, str(row.facts["admin"]), nonce)
    if status != 200 or not hmac.compare_digest(str(said.get("proof")), wanted):
        raise ValueError(
            f"{address} does not prove to be this node with the caller's token: it was not sent"
        )


async def _on_no_other_connection(event: str, _facts: object) -> None:
    """Of a request with a token. Raises ValueError before a connection is made for it."""
    if event.endswith("connect_tcp.started"):
        raise ValueError("the connection was closed behind its proof: the token was not sent")


async def _send(connection: httpx.AsyncClient, asked: httpx.Request) -> tuple[int, dict[str, Any]]:
    """Raises ValueError, httpx.HTTPError."""
    response = await connection.send(asked, stream=True)
    try:
        data = bytearray()
        async for chunk in response.aiter_bytes():
            data += chunk
            if len(data) > PEER_ANSWER_BYTES_MAX:
                raise ValueError(f"an answer of more than {PEER_ANSWER_BYTES_MAX} bytes")
    finally:
        await response.aclose()
    said = json.loads(data)
    if not isinstance(said, dict):
        raise ValueError("an answer that is no object")
    return response.status_code, said


def proof(token_sha256: bytes, node: str, incarnation: str, address: str, nonce: str) -> str:
    """`token_sha256` empty: the caller has no token. `address`: as published, so that no program
    elsewhere can pass the question on and the answer back.
    """
    parts = ("keyway node", node, incarnation, address, nonce)
    text = "\n".join(part.replace("\\", r"\\").replace("\n", r"\n") for part in parts)
    return hmac.new(token_sha256, text.encode(), "sha256").hexdigest()
