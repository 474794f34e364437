"""A Redis with a replica and three Sentinels, as an operator would run them: all with passwords."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from redis import Redis
from redis.exceptions import RedisError
from redis.sentinel import MasterNotFoundError, Sentinel

from gateway.embedded.process import free_ports, kill_child, start_child
from gateway.embedded.redis import redis_server
from tests.rig.patience import wait_until

PRIMARY = "keyway-state"
PASSWORD, SENTINEL_PASSWORD = "s3rv3r/of:redis", "of-sentinels"
SENTINELS, SERVERS = 3, 2
DOWN_AFTER_MS = 1_000

_SERVER = """\
port {port}
bind 127.0.0.1
dir "{directory}"
requirepass "{password}"
masterauth "{password}"
save ""
appendonly no
repl-diskless-sync yes
repl-diskless-sync-delay 0
repl-timeout 10
{replica_of}
"""
_SENTINEL = """\
port {port}
bind 127.0.0.1
dir "{directory}"
requirepass "{sentinel_password}"
sentinel monitor {name} 127.0.0.1 {primary} 2
sentinel auth-pass {name} {password}
sentinel down-after-milliseconds {name} {down_after_ms}
sentinel failover-timeout {name} 6000
"""


class SentinelSite:
    """`with` it: all run, and the Sentinels know of each other and of the replica."""

    def __init__(self, directory: Path) -> None:
        first = free_ports(SERVERS + SENTINELS)
        self.directory = directory
        self.servers = [first, first + 1]  # ports; the first begins as the primary
        self.sentinels = list(range(first + SERVERS, first + SERVERS + SENTINELS))
        self.children: dict[int, subprocess.Popen[bytes]] = {}  # by port

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.sentinels)
        password = PASSWORD.replace("/", "%2F").replace(":", "%3A")
        return (
            f"redis+sentinel://:{password}@{hosts}/{PRIMARY}/0"
            f"?sentinel_password={SENTINEL_PASSWORD}"
        )

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self.end)
            for port in self.servers:
                self.start_server(port, of=None if port == self.servers[0] else self.servers[0])
            wait_until(self._follows, what="a replica that follows", deadline_s=60)
            for port in self.sentinels:
                text = _SENTINEL.format(
                    port=port,
                    directory=self._folder(port),
                    sentinel_password=SENTINEL_PASSWORD,
                    name=PRIMARY,
                    primary=self.servers[0],
                    password=PASSWORD,
                    down_after_ms=DOWN_AFTER_MS,
                )
                self._start(port, text, "--sentinel")
            wait_until(self._complete, what="Sentinels that know all", deadline_s=60)
            stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        for child in self.children.values():
            kill_child(child)

    def start_server(self, port: int, *, of: int | None) -> None:
        replica_of = "" if of is None else f"replicaof 127.0.0.1 {of}"
        text = _SERVER.format(
            port=port, directory=self._folder(port), password=PASSWORD, replica_of=replica_of
        )
        self._start(port, text)

    def _start(self, port: int, text: str, *options: str) -> None:
        config = self._folder(port) / "redis.conf"
        config.write_text(text)
        command = [str(redis_server()), str(config), *options]
        self.children[port] = start_child(command, log=config.with_name("log"))

    def _folder(self, port: int) -> Path:
        folder = self.directory / str(port)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _asked(self, port: int) -> Sentinel:
        options = {"password": SENTINEL_PASSWORD, "socket_timeout": 2}
        return Sentinel(  # type: ignore[no-untyped-call]
            [("127.0.0.1", port)], sentinel_kwargs=options
        )

    def _complete(self) -> bool:
        """Each Sentinel knows the two others and the replica."""
        try:
            for port in self.sentinels:
                asked = self._asked(port)
                with asked.sentinels[0] as client:
                    state = client.sentinel_master(PRIMARY)
                    if state["num-other-sentinels"] != SENTINELS - 1:
                        return False
                    if state["num-slaves"] != SERVERS - 1:
                        return False
        except RedisError:
            return False
        return True

    def _follows(self) -> bool:
        try:
            with self.connected(self.servers[1]) as replica:
                return bool(replica.info("replication")["master_link_status"] == "up")
        except RedisError:
            return False

    def connected(self, port: int) -> Redis:
        """To one server, whatever it is at the moment."""
        return Redis(port=port, password=PASSWORD, socket_timeout=5)

    def primary(self) -> int:
        """The port of the server that a majority of the Sentinels names; 0: none."""
        named: list[int] = []
        for port in self.sentinels:
            asked = self._asked(port)
            try:
                with asked.sentinels[0]:
                    named.append(int(asked.discover_master(PRIMARY)[1]))  # type: ignore[no-untyped-call]
            except MasterNotFoundError:
                named.append(0)
        return max(set(named), key=named.count) if named else 0

    def order_fail_over(self) -> None:
        """Orders a fail-over as an operator does, while all servers are alive."""
        with self._asked(self.sentinels[0]).sentinels[0] as client:
            client.execute_command("SENTINEL", "FAILOVER", PRIMARY)

    def kill_primary(self) -> int:
        """kill -9. Returns its port."""
        port = self.primary()
        kill_child(self.children[port])
        return port

    def wait_for_replica(self) -> None:
        """The primary has one, and all Sentinels know it: another fail-over is possible."""

        def known() -> bool:
            with self.connected(self.primary()) as primary:
                if primary.info("replication")["connected_slaves"] != 1:
                    return False
            for port in self.sentinels:
                with self._asked(port).sentinels[0] as client:
                    rows = client.sentinel_slaves(PRIMARY)
                if not any(row["flags"] == "slave" for row in rows):
                    return False
            return True

        wait_until(known, what="a replica of the new primary", deadline_s=90)

    def wait_for_another(self, than: int) -> int:
        """The port of the new primary."""
        wait_until(lambda: self.primary() not in (0, than), what="a new primary", deadline_s=60)
        return self.primary()
