"""The embedded Redis: its folder, its locks, and its state after a crash of anybody."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from gateway.embedded import redis as embedded
from gateway.embedded.process import SetupError, free_ports
from gateway.embedded.redis import EmbeddedRedis
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration

ONCE = Retry(NoBackoff(), 0)

# A gateway in small: starts the server, says so, and waits to be killed.
OWNER = """
import sys
from pathlib import Path
from gateway.embedded.redis import EmbeddedRedis
server = EmbeddedRedis(Path(sys.argv[1])).start()
print(server.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    one = EmbeddedRedis(tmp_path / "redis")
    yield one
    one.stop()


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the embedded Redis of this folder."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path / "redis")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()


def put(server: EmbeddedRedis, value: str) -> None:
    with redis.Redis(unix_socket_path=str(server.socket_path)) as client:
        client.set("value", value)


def got(server: EmbeddedRedis) -> str:
    with redis.Redis(unix_socket_path=str(server.socket_path), decode_responses=True) as client:
        return str(client.get("value"))


def said(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rsplit(")", 1)[1].split()[0] == "Z"


def test_only_its_user_gets_in_and_only_by_the_socket(server: EmbeddedRedis) -> None:
    server.directory.mkdir(mode=0o755)
    server.start()
    assert stat.S_IMODE(server.directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(server.socket_path.stat().st_mode) & 0o077 == 0
    with redis.Redis(unix_socket_path=str(server.socket_path)) as client:
        assert client.config_get("port") == {"port": "0"}
        assert client.config_get("appendonly") == {"appendonly": "yes"}
        assert client.config_get("appendfsync") == {"appendfsync": "no"}


def test_data_survives_a_stop_and_a_crash(server: EmbeddedRedis) -> None:
    server.start()
    put(server, "one")
    server.stop()
    assert not server.running
    server.start()
    assert got(server) == "one"
    put(server, "two")
    server.kill()
    server.start()
    assert got(server) == "two"


def test_no_answered_write_is_lost_by_a_kill_while_the_disk_is_busy(server: EmbeddedRedis) -> None:
    """Killed right after a second began: there `everysec` answers before it has written."""
    server.start()
    block = b"x" * 2_000
    pid = server.pid
    assert pid is not None
    until_s = 2 - time.time_ns() % 1_000_000_000 / 1e9 + 0.03
    killer = threading.Timer(until_s, lambda: os.kill(pid, signal.SIGKILL))
    killer.start()
    answered = 0
    # A child that rewrites the file outlives it and holds the connection: then there is no answer.
    unanswered = suppress(redis.ConnectionError, redis.TimeoutError)
    with redis.Redis.from_url(server.url, socket_timeout=1, retry=ONCE) as client, unanswered:
        while True:
            both = {f"block-{answered % 500}": block, "count": answered + 1}
            client.mset(both)
            answered += 1
    killer.join()
    server.kill()
    server.start()
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        assert int(str(client.get("count"))) >= answered > 0


def test_one_that_dies_while_it_rewrites_its_file_is_back_at_once(
    server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its child goes on, with the lock of the folder and the connections of the dead one."""
    monkeypatch.setattr(embedded, "LEFTOVER_S_MAX", 600.0)  # far from a slow start
    server.start()
    put(server, "one")
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(20)
        line.connect(str(server.socket_path))
        line.sendall(b"CONFIG SET rdb-key-save-delay 1800000000\r\nBGREWRITEAOF\r\n")  # µs a key
        assert line.recv(100).startswith(b"+OK")
        dying = psutil.Process(server.pid)
        wait_until(lambda: bool(dying.children()), what="a rewriting child", deadline_s=20)
        (rewriter,) = dying.children()
        dying.kill()
        wait_until(lambda: not server.running, what="the server's end", deadline_s=20)
        began = time.monotonic()
        server.start()
        assert time.monotonic() - began < embedded.LEFTOVER_S_MAX / 2, "it waited for the child"
        while line.recv(100):  # TimeoutError if nobody ends it
            pass
    assert got(server) == "one"
    wait_until(lambda: is_gone(rewriter.pid), what="the child's end", deadline_s=20)
    assert not list(server.directory.glob("temp-*"))


def test_a_second_one_on_the_folder_is_refused(
    server: EmbeddedRedis, owner: subprocess.Popen[str]
) -> None:
    said(owner)
    with pytest.raises(SetupError, match=rf"in use by another Keyway \(process {owner.pid}\)"):
        server.start()
    assert owner.stdin is not None
    owner.stdin.close()
    owner.wait(60)
    server.start()
    with pytest.raises(SetupError, match=rf"process {os.getpid()}"):
        EmbeddedRedis(server.directory).start()
    put(server, "still there")


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_a_killed_gateway_leaves_no_redis_and_all_data(
    server: EmbeddedRedis, owner: subprocess.Popen[str]
) -> None:
    pid = said(owner)
    put(server, "one")
    owner.send_signal(signal.SIGKILL)
    owner.wait(60)
    server.start()
    assert got(server) == "one"
    assert server.pid != pid
    wait_until(lambda: is_gone(pid), what="the old redis-server gone", deadline_s=10)


def test_a_running_server_holds_the_lock_of_the_folder_itself(server: EmbeddedRedis) -> None:
    server.start()
    lock = os.open(server.directory / "server.lock", os.O_RDWR)
    assert not embedded._try_lock(lock)
    server.stop()
    assert embedded._try_lock(lock)
    os.close(lock)


@pytest.fixture
def leftover(server: EmbeddedRedis) -> Iterator[subprocess.Popen[bytes]]:
    """A redis-server on the folder that outlived its gateway, as where nothing kills it."""
    server.start()
    put(server, "one")
    server.stop()
    lock = os.open(server.directory / "server.lock", os.O_RDWR)
    assert embedded._try_lock(lock)
    command = [str(embedded.redis_server()), str(server.directory / "redis.conf")]
    with subprocess.Popen(command, pass_fds=(lock,)) as process:
        os.close(lock)
        wait_until(lambda: server._ask("PING") != "", what="leftover ready", deadline_s=10)
        yield process
        process.kill()


def test_a_leftover_ends_before_a_new_one_starts(
    server: EmbeddedRedis, leftover: subprocess.Popen[bytes]
) -> None:
    put(server, "two")
    server.start()
    assert leftover.wait(60) == 0, "it was asked, not killed"
    assert got(server) == "two"


def test_a_leftover_that_does_not_end_is_named(
    server: EmbeddedRedis, leftover: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "LEFTOVER_S_MAX", 0.2)
    monkeypatch.setattr(embedded, "ANSWER_S_MAX", 0.2)
    leftover.send_signal(signal.SIGSTOP)
    with pytest.raises(SetupError, match=r"left behind .* does not end") as caught:
        server.start()
    assert str(server.directory / "redis.pid") in str(caught.value)
    leftover.send_signal(signal.SIGCONT)
    monkeypatch.undo()
    server.start()
    assert got(server) == "one"


def test_a_file_cut_off_by_a_crash_of_the_machine_is_read_as_far_as_it_goes(
    server: EmbeddedRedis,
) -> None:
    server.start()
    put(server, "one")
    put(server, "two")
    server.kill()
    file = server.directory / "keyway.aof"
    file.write_bytes(file.read_bytes()[:-3])
    server.start()
    assert got(server) == "one"


def test_a_damaged_file_is_said_in_one_line_and_lets_go_of_the_folder(
    server: EmbeddedRedis,
) -> None:
    server.start()
    put(server, "one")
    server.kill()
    file = server.directory / "keyway.aof"
    file.write_bytes(b"garbage\r\n" + file.read_bytes())
    for _ in range(2):
        with pytest.raises(SetupError, match=r"Bad file format .* starts empty") as caught:
            server.start()
        assert "\n" not in str(caught.value)
    file.unlink()
    server.start()
    assert got(server) == "None"


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(SetupError, match=rf"port {port} .* is taken"):
            EmbeddedRedis(tmp_path / "redis", port=port).start()
    with (
        EmbeddedRedis(tmp_path / "redis", port=free_ports()) as running,
        redis.Redis.from_url(running.tcp_url) as client,
    ):
        assert client.ping()


def test_a_path_too_long_for_a_socket_is_none_for_a_folder(tmp_path: Path) -> None:
    directory = tmp_path / ("long-" * 20) / "redis"
    directory.parent.mkdir()
    with EmbeddedRedis(directory) as running:
        put(running, "one")
        assert got(running) == "one"
        assert len(os.fsencode(running.socket_path)) <= 100
        place = running.socket_path.parent
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
    place.rmdir()


def test_a_folder_that_cannot_be_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="cannot use"):
        EmbeddedRedis(tmp_path / "file" / "redis").start()
    with pytest.raises(SetupError, match="cannot use"):
        EmbeddedRedis(tmp_path / "file").start()
