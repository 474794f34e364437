"""What a JVM says while it starts, and later."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

SCRIPT = """
import subprocess, sys, threading
from spark.quiet_start import quiet_start

def say(text):
    print(text, file=sys.stderr)

with quiet_start():
    say("of Python")
    java = subprocess.Popen(["sh", "-c", "echo WARN noise >&2; echo up; read word; echo later >&2"],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    java.stdout.readline()
    subprocess.run(["sh", "-c", "echo 11:12 ERROR bad jar >&2"])
    if sys.argv[1] == "fails":
        raise RuntimeError("no JVM")
java.communicate(b"go\\n")
for relay in threading.enumerate()[1:]:  # it ends when nobody can write any more
    relay.join(60)
say("the end")
"""


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("starts", ["11:12 ERROR bad jar", "later", "the end"]),
        ("fails", ["of Python", "WARN noise", "11:12 ERROR bad jar", "RuntimeError: no JVM"]),
    ],
)
def test_remarks_are_shown_if_the_start_fails(end: str, said: list[str]) -> None:
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), end]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    lines = done.stderr.splitlines()
    shown = [line for line in lines if not line.startswith((" ", "Traceback"))]
    assert sorted(shown) == sorted(said), done.stderr
