"""A name under which a classic or a consumer group is at work is no share group's."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.schema import Message
from gateway.members.group_types import OtherGroupTypes
from gateway.members.limits import OTHER_GROUP_TYPE_S_MAX
from gateway.upstream.errors import Refused, Unreachable, UpstreamError
from tests.rig.node_parts import GROUP, Node
from tests.rig.share_client import Client, ScriptedConnection, error, services
from tests.rig.virtual_time import now_ms, run

CLASSIC, CONSUMER = ApiKey.DESCRIBE_GROUPS, ApiKey.CONSUMER_GROUP_DESCRIBE
STREAMS = ApiKey.STREAMS_GROUP_DESCRIBE
Answer = tuple[int, str] | tuple[int, str, str] | UpstreamError  # error code, state, protocol type


@dataclass(slots=True)
class Upstream:
    answers: dict[int, list[Answer]]  # by API; the last one stays
    coordinators: int = 0  # asked for
    forgotten: list[str] = field(default_factory=list)

    async def coordinator(self, group: str) -> int:
        assert group == "g"
        self.coordinators += 1
        return 7

    def forget_coordinator(self, group: str) -> None:
        self.forgotten.append(group)

    async def call(self, api_key: int, body: Message, *, broker_id: int) -> Message:
        assert broker_id == 7
        assert "g" in [*body.get("Groups", ()), *body.get("GroupIds", ())]
        left = self.answers.get(api_key) or [(NOT_FOUND, "")]
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, UpstreamError):
            raise answer
        row: Message = {"ErrorCode": answer[0], "GroupState": answer[1]}
        if api_key == CLASSIC:
            row["ProtocolType"] = "consumer" if len(answer) < 3 else answer[2]
        return {"Groups": [row]}


NOT_FOUND = int(ErrorCode.GROUP_ID_NOT_FOUND)
NOT_HERE = int(ErrorCode.NOT_COORDINATOR)
LOADING = int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
DENIED = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)


@pytest.mark.parametrize(
    ("classic", "consumer", "expected"),
    [
        ((0, "Dead"), (NOT_FOUND, ""), False),
        ((0, "Empty"), (NOT_FOUND, ""), False),
        ((NOT_FOUND, "Dead"), (NOT_FOUND, "Dead"), False),
        ((0, "Stable"), (NOT_FOUND, ""), True),
        ((0, "PreparingRebalance"), (NOT_FOUND, ""), True),
        ((0, "Dead"), (0, "Stable"), True),
        ((NOT_FOUND, "Dead"), (0, "Reconciling"), True),
        ((0, "Dead"), (0, "Empty"), False),
        ((DENIED, ""), (DENIED, ""), False),
        ((0, "Dead"), Refused(ErrorCode.UNSUPPORTED_VERSION, "69"), False),
        ((0, "Stable"), Refused(ErrorCode.UNSUPPORTED_VERSION, "69"), True),
        (Unreachable("away"), (0, "Stable"), False),
        ((0, "Dead"), Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "odd"), False),
    ],
)
def test_who_is_at_work(classic: Answer, consumer: Answer, *, expected: bool) -> None:
    upstream = Upstream({CLASSIC: [classic], CONSUMER: [consumer]})
    assert run(OtherGroupTypes(upstream).active("g")) is expected


@pytest.mark.parametrize(
    ("classic", "consumer", "expected"),
    [
        ((0, "Dead", ""), (NOT_FOUND, ""), False),
        ((NOT_FOUND, "Dead", ""), (NOT_FOUND, ""), False),
        ((0, "Empty", ""), (NOT_FOUND, ""), False),
        ((0, "Empty", "consumer"), (NOT_FOUND, ""), True),
        ((0, "Stable", "consumer"), (NOT_FOUND, ""), True),
        ((NOT_FOUND, "Dead", ""), (0, "Empty"), True),
        ((NOT_FOUND, "Dead", ""), (0, "Stable"), True),
        ((DENIED, "", ""), (DENIED, ""), False),
        ((0, "Empty", ""), Refused(ErrorCode.UNSUPPORTED_VERSION, "69"), False),
        (Unreachable("away"), (0, "Empty"), False),
    ],
)
def test_who_has_the_name_or_had_it(classic: Answer, consumer: Answer, *, expected: bool) -> None:
    upstream = Upstream({CLASSIC: [classic], CONSUMER: [consumer]})
    assert run(OtherGroupTypes(upstream).known("g")) is expected


@pytest.mark.parametrize(
    ("streams", "active", "known"),
    [
        ((0, "NotReady"), True, True),
        ((0, "Stable"), True, True),
        ((0, "Empty"), False, True),
        ((NOT_FOUND, ""), False, False),
        ((int(ErrorCode.UNSUPPORTED_VERSION), ""), False, False),  # switched off there
        (Refused(ErrorCode.UNSUPPORTED_VERSION, "89"), False, False),
    ],
)
@pytest.mark.parametrize("consumer", [(NOT_FOUND, ""), Refused(ErrorCode.UNSUPPORTED_VERSION, "")])
def test_an_application_of_kafka_streams(
    streams: Answer, consumer: Answer, *, active: bool, known: bool
) -> None:
    answers: dict[int, list[Answer]] = {
        CLASSIC: [(NOT_FOUND, "Dead")],
        CONSUMER: [consumer],
        STREAMS: [streams],
    }
    types = OtherGroupTypes(Upstream(answers))
    assert run(types.active("g")) is active
    assert run(types.known("g")) is known


def test_a_coordinator_that_moved_is_looked_for() -> None:
    upstream = Upstream(
        {CLASSIC: [(NOT_HERE, ""), (LOADING, ""), (0, "Stable")], CONSUMER: [(NOT_FOUND, "")]}
    )
    assert run(OtherGroupTypes(upstream).active("g"))
    assert (upstream.coordinators, upstream.forgotten) == (3, ["g", "g"])


def test_nobody_waits_long_to_know() -> None:
    async def work() -> int:
        began = now_ms()
        upstream = Upstream({CLASSIC: [(NOT_HERE, "")], CONSUMER: [(NOT_FOUND, "")]})
        assert not await OtherGroupTypes(upstream).active("g")
        return now_ms() - began

    assert run(work()) == OTHER_GROUP_TYPE_S_MAX * 1000


def test_a_member_joins_when_the_others_have_left() -> None:
    async def work() -> None:
        async with Node() as node:
            others = {GROUP}
            client = Client(node, services(node, others), ScriptedConnection(1))
            refused = await client.heartbeat()
            assert error(refused) == ErrorCode.GROUP_ID_NOT_FOUND
            assert "members of another kind" in refused["ErrorMessage"]
            assert node.groups.get(GROUP) is None
            others.clear()
            assert error(await client.heartbeat()) == ErrorCode.NONE
            others.add(GROUP)  # present members stay: Kafka has let the others in
            assert error(await client.heartbeat(1)) == ErrorCode.NONE

    run(work())
