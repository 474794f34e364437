"""The form of a log line, as a process writes it."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
import structlog

from keyway import logs
from keyway.logs import TEXT_CHARS_MAX, UNRAISABLE_S, Unraisable
from tests.rig.logs import log_as_tests_do

PROGRAM = """
import logging, sys, structlog
from keyway.logs import configure
configure(sys.argv[1], sys.argv[2])
log = structlog.get_logger("keyway.part").bind(group="g")
log.debug("quiet")
log.info("ready", text="two\\nlines")
try:
    raise ValueError("why")
except ValueError:
    log.exception("failed")
logging.getLogger("some.library").info("nobody asked")
log.debug("long", text="x" * 40_000)
logging.getLogger("some.library").warning("it %s", "happened")
"""


def lines(form: str, level: str) -> list[str]:
    command = [sys.executable, "-c", PROGRAM, form, level]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_json_has_an_object_per_line_also_of_libraries() -> None:
    ready, failed, library = (json.loads(line) for line in lines("json", "info"))
    assert ready.pop("timestamp").endswith("Z")
    assert ready == {
        "level": "info",
        "logger": "keyway.part",
        "event": "ready",
        "group": "g",
        "text": "two\nlines",
    }
    assert (failed["event"], failed["level"], failed["group"]) == ("failed", "error", "g")
    assert failed["exception"].splitlines()[-1] == "ValueError: why"
    assert (library["logger"], library["event"]) == ("some.library", "it happened")
    assert library["level"] == "warning"


def test_text_begins_alike_and_stays_on_one_line() -> None:
    ready, failed, library = lines("text", "info")
    assert " level='info' logger='keyway.part' event='ready' " in ready
    assert r"text='two\nlines'" in ready
    assert r"ValueError: why" in failed
    assert "logger='some.library' event='it happened'" in library


def test_the_level_is_the_least_that_is_logged() -> None:
    assert json.loads(lines("json", "debug")[0])["event"] == "quiet"
    assert [json.loads(line)["event"] for line in lines("json", "error")] == ["failed"]


def test_what_a_client_makes_long_is_cut() -> None:
    (long,) = [
        event for event in map(json.loads, lines("json", "debug")) if event["event"] == "long"
    ]
    assert long["text"] == "x" * TEXT_CHARS_MAX + "... (40,000 characters)"


LOST = """
import json, os, sys, structlog
from keyway.logs import configure, lost_lines
configure("json", "info")
log = structlog.get_logger("keyway.part")
log.info("written")
good = os.dup(2)
reader, broken = os.pipe()
os.close(reader)
os.dup2({stderr}, 2)
log.info("lost")
log.error("lost, too")
print(json.dumps([lost_lines.count, lost_lines.trouble]))
os.dup2(good, 2)
log.info("written again")
print(json.dumps([lost_lines.count, lost_lines.trouble]))
"""


@pytest.mark.parametrize(
    ("stderr", "reason"),
    [
        ("broken", "Broken pipe"),
        ("os.open('/dev/full', os.O_WRONLY)", "No space left on device"),
    ],
)
def test_a_line_that_cannot_be_written_is_counted_and_ends_nothing(
    stderr: str, reason: str
) -> None:
    program = LOST.replace("{stderr}", stderr)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True
    )
    while_lost, after = (json.loads(line) for line in done.stdout.splitlines())
    assert while_lost[0] == 2
    assert reason in while_lost[1]
    assert after == [2, None]
    assert "written again" in done.stderr


def test_a_command_run_in_a_test_leaves_later_tests_their_lines() -> None:
    log = structlog.get_logger("keyway.part")
    logs.configure()
    log.info("of_the_command")
    log_as_tests_do()
    with structlog.testing.capture_logs() as captured:
        log.info("of_a_later_test")
    assert [line["event"] for line in captured] == ["of_a_later_test"]


NAMED = """
import json, ssl, sys
from keyway.logs import configure
configure("json", "info")
server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
server.sni_callback = lambda *_: None
client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
try:
    client.wrap_bio(back, there, server_hostname="q" * 60 + ".example").do_handshake()
except ssl.SSLWantReadError:
    hello = there.read().replace(b"q" * 60, b"\\xff\\xfe" * 30)
for _ in range(100):
    incoming = ssl.MemoryBIO()
    incoming.write(hello)
    try:
        server.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True).do_handshake()
    except ssl.SSLError:
        pass
"""


def test_strangers_server_names_are_one_line() -> None:
    """Each was half a kilobyte of Python's own words, with the stranger's bytes in it."""
    done = subprocess.run(
        [sys.executable, "-c", NAMED], capture_output=True, text=True, timeout=300, check=True
    )
    (line,) = done.stderr.splitlines()
    said = json.loads(line)
    assert (said["event"], said["of"], said["left_out"]) == ("exception_ignored", "bytes", 0)
    assert "UnicodeDecodeError" in said["exception"]
    assert len(line) < 1_000


def test_ignored_exceptions_are_counted_by_their_kind() -> None:
    now_s = 0.0
    hook = Unraisable(lambda: now_s)

    def ignored(error: Exception) -> None:
        hook(
            SimpleNamespace(
                exc_type=type(error), exc_value=error, exc_traceback=None, object=ignored
            )
        )

    with structlog.testing.capture_logs() as captured:
        for _ in range(3):
            ignored(ValueError())
        ignored(KeyError())
        now_s = UNRAISABLE_S
        ignored(ValueError())
    assert [line["left_out"] for line in captured] == [0, 0, 2]
    assert captured[0]["of"].endswith("ignored")
