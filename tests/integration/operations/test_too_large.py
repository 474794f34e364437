"""A message that is small on the wire and too large when decompressed: it stops its partition for a
group until the group gives it up, by an operator's skip or by its policy; nothing else is lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.core.wire.records import BODY_BYTES_MAX
from gateway.embedded.kafka import KafkaCluster
from tests.rig.clients.share_members import ShareHost, consume_all
from tests.rig.committed import wait_for_committed
from tests.rig.gateway_process import GatewayProcess, Settings
from tests.rig.inflating import with_a_bomb
from tests.rig.operating import keyway, metrics, rest, windows_of
from tests.rig.patience import wait_until

pytestmark = [pytest.mark.deep, pytest.mark.integration]

ANSWER_S_MAX = 120.0
SAID = f"too large when decompressed: more than {BODY_BYTES_MAX:,} bytes (MESSAGE_TOO_LARGE)"


def test_an_operator_skips_it(
    gateway: GatewayProcess,
    kafka: KafkaCluster,
    topic: Callable[..., str],
    share_group: Callable[..., str],
    any_host: ShareHost,
) -> None:
    name, group = topic(partitions=1), share_group("block")
    with_a_bomb(kafka, name)
    member = any_host.member(gateway.bootstrap, group, [name])
    consume_all([member], {(name, 0, 0), (name, 0, 1)})

    def unreadable() -> list[object]:
        status, answer = rest(gateway, f"/v1/unreadable?group={group}")
        assert status == 200
        return list(answer["unreadable"])

    wait_until(lambda: bool(unreadable()), what="the batch is shown", deadline_s=ANSWER_S_MAX)
    reason = f"offset 2: the batch at base offset 2 is {SAID}"
    place = {"topic": name, "partition": 0, "offset": 2, "last_offset": 2, "reason": reason}
    assert unreadable() == [place]
    (row,) = windows_of(gateway, group)
    assert row["read_trouble"] == reason

    def skip(*more: str) -> tuple[int, str, str]:
        where = ("--topic", name, "--partition", "0")
        return keyway(gateway, "group", "skip", group, *where, *more)

    assert skip("--offset", "3", "--execute")[0] == 1, "that one is readable"
    status, said, _ = skip("--offset", "2")
    assert status == 0
    assert said.splitlines()[-1] == "skip: 1 batch; nothing is done without --execute"
    status, said, _ = skip("--offset", "2", "-o", "json")
    assert (status, json.loads(said)["unreadable"]) == (0, [place])
    assert unreadable() == [place], "a dry run is dry"
    assert [delivery.offset for delivery in member.deliveries] == [0, 1]
    assert skip("--offset", "2", "--execute")[:2] == (0, f"skip: offsets 2 to 2 of {name}-0\n")
    consume_all([member], {(name, 0, 3), (name, 0, 4)})
    wait_for_committed(kafka, group, name, 0, 5)
    assert unreadable() == []
    status, said, _ = keyway(gateway, "group", "unreadable", group)
    assert (status, len(said.splitlines())) == (0, 1), "the heads of the table alone"
    assert skip("--offset", "2")[0] == 1, "nothing is left to be skipped"
    log = gateway.log_text().replace("'", "")
    assert f"unreadable_skipped group={group}" in log
    assert metrics(gateway)[f'keyway_group_records_total{{group="{group}",outcome="dropped"}}'] == 1
    member.close()


def test_a_group_whose_policy_is_to_drop_goes_on_by_itself(
    gateway: GatewayProcess,
    kafka: KafkaCluster,
    topic: Callable[..., str],
    share_group: Callable[..., str],
    librdkafka_host: ShareHost,
) -> None:
    """Beside a group that waits for an operator, on the same partition."""
    name, waits, drops = topic(partitions=1), share_group("block"), share_group("drop")
    with_a_bomb(kafka, name)
    waiting = librdkafka_host.member(gateway.bootstrap, waits, [name])
    consume_all([waiting], {(name, 0, 0), (name, 0, 1)})
    member = librdkafka_host.member(gateway.bootstrap, drops, [name])
    consume_all([member], {(name, 0, at) for at in (0, 1, 3, 4)})
    wait_for_committed(kafka, drops, name, 0, 5)
    assert metrics(gateway)[f'keyway_group_records_total{{group="{drops}",outcome="dropped"}}'] == 1
    assert waiting.poll_empty(1.0) == []
    wait_for_committed(kafka, waits, name, 0, 2)
    body = {"group": waits, "topic": name, "partition": 0, "offset": 2}
    status, answer = rest(gateway, "/v1/unreadable/skip", body)
    assert (status, answer["skipped"]["last_offset"]) == (200, 2)
    consume_all([waiting], {(name, 0, 3), (name, 0, 4)})
    assert rest(gateway, "/v1/unreadable/skip", body)[0] == 409
    assert rest(gateway, "/v1/unreadable/skip", {**body, "group": "no such"})[0] == 404
    assert rest(gateway, "/v1/unreadable/skip", {**body, "topic": "no-such"})[0] == 404
    assert rest(gateway, "/v1/unreadable/skip", {"group": waits})[0] == 400
    assert rest(gateway, "/v1/unreadable")[0] == 400
    for one in (waiting, member):
        one.close()


def test_a_skip_outlives_a_restart(
    kafka: KafkaCluster,
    topic: Callable[..., str],
    fresh_name: Callable[[str], str],
    librdkafka_host: ShareHost,
    tmp_path: Path,
) -> None:
    """Also while a record before it is not settled: nobody is asked about it a second time."""
    name, group = topic(partitions=1), fresh_name("skipped")
    with_a_bomb(kafka, name)
    settings: Settings = {"match": "*", "auto_offset_reset": "earliest"}
    with GatewayProcess(tmp_path, kafka.bootstrap_servers, groups=[settings]) as gateway:
        member = librdkafka_host.member(gateway.bootstrap, group, [name], explicit=True)
        held = member.poll_some()
        assert {record.offset for record in held} <= {0, 1}
        body = {"group": group, "topic": name, "partition": 0, "offset": 2}
        wait_until(
            lambda: rest(gateway, "/v1/unreadable/skip", body)[0] == 200,
            what="the batch is known, and skipped",
            deadline_s=ANSWER_S_MAX,
        )
        gateway.kill()
        gateway.start()
        member.acknowledge("ACCEPT", held)
        member.commit()
        delivered = {record.offset for record in held}
        while not {0, 1, 3, 4} <= delivered:
            batch = member.poll_some(within_s=ANSWER_S_MAX)
            assert batch, f"stuck with {delivered}"
            member.acknowledge("ACCEPT", batch)
            member.commit()
            delivered |= {record.offset for record in batch}
        assert 2 not in delivered
        member.close()
