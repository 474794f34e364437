"""Several look at the requests of clients; each answers what it stops."""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.core.forwarding.effects import Client, MayRead
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.codec import encode_request
from gateway.core.wire.frames import parse_request_header, request_frame
from gateway.listen.answering import Request
from gateway.listen.looks import Looks
from tests.rig.share_client import SIZE_PREFIX, ScriptedConnection
from tests.rig.virtual_time import run

JOIN, HEARTBEAT = int(ApiKey.JOIN_GROUP), int(ApiKey.HEARTBEAT)


@dataclass
class Looker:
    name: bytes
    apis: frozenset[int]
    stopped: set[int] = field(default_factory=set)

    def stops(
        self, client: Client, may_read: MayRead, api_key: int, version: int, payload: bytes, /
    ) -> bool:
        assert (client, may_read, version) == (("10.0.0.1", None), {("group", "g")}, 3)
        assert payload
        assert api_key in self.apis
        return api_key in self.stopped

    async def answer(self, _request: Request) -> bytes:
        return self.name


def test_each_answers_what_it_stops() -> None:
    looks = Looks()
    first = Looker(b"first", frozenset({JOIN, HEARTBEAT}))
    second = Looker(b"second", frozenset({JOIN}))
    looks.add(first, first.answer)
    looks.add(second, second.answer)
    assert looks.screen.apis == {JOIN, HEARTBEAT}

    def stops(key: int) -> bool:
        return looks.screen.stops(("10.0.0.1", None), {("group", "g")}, key, 3, b"payload")

    def answered(key: int) -> bytes:
        frame = request_frame(key, 3, 1, "c", encode_request(key, 3, {"GroupId": "g"}))
        payload = frame[SIZE_PREFIX:]
        connection = ScriptedConnection(1, may_read={("group", "g")}).as_connection()
        answer = run(looks.answer(Request(parse_request_header(payload), payload, connection)))
        assert isinstance(answer, bytes)
        return answer

    assert not stops(JOIN)
    first.stopped.add(JOIN)
    assert stops(JOIN)
    assert answered(JOIN) == b"first"
    second.stopped.add(JOIN)
    assert answered(JOIN) == b"second", "who came last looks first"
    first.stopped.clear()
    second.stopped.clear()
    assert answered(JOIN) == b"first", "it has been stopped, and nobody stops it any more"
    assert answered(HEARTBEAT) == b"first"
    first.apis = frozenset()
    looks.changed()
    assert looks.screen.apis == {JOIN}
    assert not stops(HEARTBEAT)
