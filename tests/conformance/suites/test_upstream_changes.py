"""What the lines of Kafka's Verifiable* say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.conformance.suites.upstream_changes import Program

LINES = """SLF4J: no logger
{"timestamp":1000,"name":"startup_complete"}
{"timestamp":1100,"name":"record_data","value":"a","offset":0}
{"timestamp":1900,"name":"record_data","value":"b","offset":1}
{"timestamp":2000,"name":"record_data","value":"b","offset":2}
{"timestamp":2100,"name":"record_da"""


def test_values_and_the_longest_stall_between_records_that_are_told_whole(tmp_path: Path) -> None:
    log = tmp_path / "reader.log"
    program = Program(subprocess.Popen([sys.executable, "-c", ""]), log, "record_data")
    program.child.wait()
    assert program.values() == set()
    assert program.stalls_ms([1000]) == [0]
    log.write_text(LINES)
    assert program.values() == {"a", "b"}
    assert program.count() == 3
    assert program.stalls_ms([1000]) == [800]
    assert program.stalls_ms([1200, 1950]) == [800, 100]
