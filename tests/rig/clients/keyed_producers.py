"""Stock producers as processes that a test freezes and ends: numbered records of keys."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from tests.rig.clients.java_programs import JavaPrograms
from tests.rig.patience import patient_s

REPOSITORY = Path(__file__).parents[3]


class KeyedProducer:
    def __init__(self, command: Sequence[str]) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self.process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
        )

    @classmethod
    def librdkafka(
        cls, bootstrap: str, topic: str, first: int, keys: int, rate: int, *config: str
    ) -> Self:
        words = (bootstrap, topic, str(first), str(keys), str(rate), *config)
        return cls([sys.executable, "-m", "tests.rig.clients.keyed_producer", *words])

    @classmethod
    def java(
        cls,
        programs: JavaPrograms,
        bootstrap: str,
        topic: str,
        first: int,
        keys: int,
        rate: int,
        *config: str,
    ) -> Self:
        words = (bootstrap, topic, str(first), str(keys), str(rate), *config)
        return cls(programs.command("KeyedProducer", *words))

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def end(self) -> dict[str, int]:
        """Flushes. The number of records by key; each was acknowledged. Their sum is what another
        one goes on behind.
        """
        out, _ = self.process.communicate(timeout=patient_s(200))
        with self._said as said:
            said.seek(0)
            words = said.read()[-2_000:].decode(errors="replace")
        assert out, f"a producer ended with {self.process.returncode}: {words}"
        told: dict[str, Any] = json.loads(out.splitlines()[-1])
        assert not told["failed"], told["failed"][:3]
        assert told["left"] == 0, f"{told['left']} records unsent"
        return {str(key): int(count) for key, count in told["keys"].items()}

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
        self._said.close()
