"""Kafka's own command line tools, as an admin runs them, in one JVM that is started once."""

from __future__ import annotations

import base64
import subprocess
import threading
from typing import Self

from tests.rig.clients.java_programs import JavaPrograms
from tests.rig.patience import patient_s

SHARE_GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
GROUPS = "org.apache.kafka.tools.GroupsCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
TOOL_S_MAX = patient_s(60.0)


def table(said: str) -> list[dict[str, str]]:
    """The rows of a tool's table by its column heads; heads and cells hold no blanks."""
    lines = [line.split() for line in said.splitlines() if line.strip()]
    at = next(at for at, words in enumerate(lines) if words[0] == "GROUP")
    return [
        dict(zip(lines[at], words, strict=False))
        for words in lines[at + 1 :]
        if len(words) == len(lines[at])  # else: a remark
    ]


class KafkaTools:
    def __init__(self, programs: JavaPrograms) -> None:
        self._host = subprocess.Popen(
            programs.command("ToolHost"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(self, tool: str, bootstrap: str, *arguments: str) -> str:
        """Everything the tool says, refusals too. Raises AssertionError if it does not end."""
        command, answers = self._host.stdin, self._host.stdout
        assert command is not None
        assert answers is not None
        command.write("\t".join([tool, "--bootstrap-server", bootstrap, *arguments]) + "\n")
        command.flush()
        too_late = threading.Timer(TOOL_S_MAX, self._host.kill)
        too_late.start()
        try:
            for line in answers:
                kind, _, said = line.partition("\t")
                if kind == "said":  # else: a logger's line
                    return base64.b64decode(said).decode()
        finally:
            too_late.cancel()
        raise AssertionError(
            f"{tool} {arguments}: no answer within {TOOL_S_MAX} s, or its JVM died"
        )

    def stop(self) -> None:
        for pipe in (self._host.stdin, self._host.stdout):
            if pipe is not None:
                pipe.close()
        self._host.kill()
        self._host.wait(60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
