"""The consumers in the README, taken from it and run: only bootstrap.servers is the gateway's."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.embedded.kafka import kafka_classpath
from gateway.embedded.process import kill_child, start_child, wait_until
from tests.rig.gateway_process import REPOSITORY
from tests.rig.kafka import produce

pytestmark = pytest.mark.integration

KEYS, RECORDS = 3, 60
FIRST_RECORDS_S_MAX = 60.0
JAVA = """\
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

public class Example {
    public static void main(String[] args) {
%s
    }
}
"""


def example(language: str, front: str, topic: str, group: str) -> str:
    (block,) = re.findall(
        rf"```{language}\n(.+?)```", (REPOSITORY / "README.md").read_text(encoding="utf-8"), re.S
    )
    for theirs, ours in (("127.0.0.1:9192", front), ("orders", topic), ("billing", group)):
        assert block.count(f'"{theirs}"') == 1
        block = block.replace(f'"{theirs}"', f'"{ours}"')
    return str(block)


def command_of(language: str, code: str, directory: Path) -> list[str]:
    if language == "python":
        file = directory / "example.py"
        file.write_text(code)
        return [sys.executable, "-u", str(file)]
    file = directory / "Example.java"
    file.write_text(JAVA % code)
    return ["java", "-XX:TieredStopAtLevel=1", "-cp", kafka_classpath(), str(file)]


@pytest.mark.parametrize("language", ["python", "java"])
def test_the_consumer_of_the_readme(
    front: str,
    topic: Callable[..., str],
    share_group: Callable[[str], str],
    tmp_path: Path,
    language: str,
) -> None:
    name = topic(partitions=2)
    sent = [(b"customer-%d" % (at % KEYS), b"order %d" % at) for at in range(RECORDS)]
    produce(front, name, sent)
    log = tmp_path / "example.log"
    code = example(language, front, name, share_group("readme"))
    child = start_child(command_of(language, code, tmp_path), log=log)

    def printed() -> list[tuple[str, int, str]]:
        lines = re.findall(r"^b?'?(customer-\d)'? (\d+) b?'?(order \d+)'?$", log.read_text(), re.M)
        return [(key, int(offset), value) for key, offset, value in lines]

    try:
        wait_until(
            lambda: len(printed()) >= RECORDS,
            what=f"{RECORDS} records printed (see {log})",
            deadline_s=FIRST_RECORDS_S_MAX,
        )
    finally:
        kill_child(child)
    by_key: dict[str, list[str]] = defaultdict(list)
    for key, _, value in printed():
        by_key[key].append(value)
    for number in range(KEYS):
        in_order = [f"order {at}" for at in range(number, RECORDS, KEYS)]
        assert by_key[f"customer-{number}"] == in_order
