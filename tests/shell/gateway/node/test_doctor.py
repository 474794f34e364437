"""`keyway doctor` against brokers that obey the test, a real Redis, and taken ports."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis as redis_client
import yaml
from typer.testing import CliRunner, Result

from gateway.cli.main import app
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.embedded.process import free_ports
from gateway.embedded.redis import EmbeddedRedis
from tests.rig.fake_broker import Answer, FakeBroker, ReceivedRequest, speaking

ALL = (1 << 16) - 8


def broker_with(
    *, limit: str = "4096", group_error: int = ErrorCode.UNKNOWN_MEMBER_ID, bits: int = ALL
) -> FakeBroker:
    async def metadata(request: ReceivedRequest) -> bytes:
        topic = {
            "ErrorCode": 0,
            "Name": "orders",
            "TopicId": bytes(16),
            "Partitions": [],
            "TopicAuthorizedOperations": bits,
        }
        return request.response(broker.metadata() | {"Topics": [topic]})

    async def configs(request: ReceivedRequest) -> bytes:
        entry = {"Name": "offset.metadata.max.bytes", "Value": limit}
        return request.response({"Results": [{"ErrorCode": 0, "Configs": [entry]}]})

    async def heartbeat(request: ReceivedRequest) -> bytes:
        assert request.body["GroupId"] == "keyway-doctor"
        return request.response({"ErrorCode": group_error})

    answers: dict[int, Answer] = {
        ApiKey.METADATA: metadata,
        ApiKey.DESCRIBE_CONFIGS: configs,
        ApiKey.HEARTBEAT: heartbeat,
    }
    broker = speaking(answers)
    return broker


@contextmanager
def serving(broker: FakeBroker) -> Iterator[FakeBroker]:
    """In a thread of its own: the command has its own event loop."""
    loop = asyncio.new_event_loop()
    started, end = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with broker.running():
            started.set()
            await end.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert started.wait(120)
    try:
        yield broker
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(30)
        loop.close()


def doctor(folder: Path, port: int, *words: str, **sections: Any) -> Result:
    first = free_ports(12)
    settings = {
        "upstream": {"bootstrap_servers": f"127.0.0.1:{port}"},
        "listen": {"bootstrap_port": first, "port_base": first + 1},
        "admin": {"port": first + 11},
        "state": {"directory": str(folder / "data")},
    }
    path = folder / "keyway.yaml"
    path.write_text(yaml.safe_dump(settings | sections))
    return CliRunner().invoke(app, ["doctor", "--config", str(path), *words])


def findings(result: Result) -> dict[str, dict[str, str]]:
    rows = json.loads(result.stdout)["findings"]
    assert all(row.keys() == {"check", "status", "found", "mend"} for row in rows)
    return {row["check"]: row for row in rows}


def test_all_is_there(tmp_path: Path) -> None:
    with serving(broker_with()) as broker:
        result = doctor(tmp_path, broker.port, "-o", "json")
    assert result.exit_code == 0, result.output
    found = findings(result)
    assert [row["status"] for name, row in found.items() if name not in ("Java", "compiler")] == [
        "ok"
    ] * (len(found) - 2)
    assert found["upstream"]["found"] == "cluster fake, 1 broker answers"
    assert found["permissions"]["found"] == "READ on groups and on 1 topic"
    assert not (tmp_path / "data").exists(), "it only looks"


def test_a_table_for_people(tmp_path: Path) -> None:
    with serving(broker_with(limit="1000")) as broker:
        result = doctor(tmp_path, broker.port)
    assert result.exit_code == 0, "a warning is no fault"
    head, *rows = result.stdout.splitlines()
    assert head.split() == ["CHECK", "STATUS", "FOUND", "MEND"]
    (limit,) = [row for row in rows if "metadata limit" in row]
    assert "warning" in limit
    assert "set it to 4096" in limit


def test_the_folder_of_the_embedded_redis_is_named_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative one begins in the working directory of the node, which may be another."""
    monkeypatch.chdir(tmp_path)
    with serving(broker_with()) as broker:
        found = findings(doctor(tmp_path, broker.port, "-o", "json", state={"directory": "data"}))
    assert f"in {tmp_path / 'data'}: " in found["Redis"]["found"]


def test_no_broker_answers(tmp_path: Path) -> None:
    port = free_ports(1)
    result = doctor(tmp_path, port, "-o", "json")
    assert result.exit_code == 1
    found = findings(result)
    upstream = found["upstream"]
    assert upstream["status"] == "fault"
    assert upstream["found"] == f"127.0.0.1:{port}: Connection refused"
    assert "bootstrap_servers" in upstream["mend"]
    skipped = [name for name, row in found.items() if row["status"] == "skipped"]
    assert skipped == ["version", "metadata limit", "permissions", "ports of brokers"]


def test_permissions_that_are_missing(tmp_path: Path) -> None:
    letters = [{"exhausted": "dead_letter", "dead_letter_topic": "orders"}]
    refusing = broker_with(group_error=ErrorCode.GROUP_AUTHORIZATION_FAILED, bits=1 << 3)
    with serving(refusing) as broker:
        result = doctor(tmp_path, broker.port, groups=letters)
    assert result.exit_code == 1
    assert "GROUP_AUTHORIZATION_FAILED" in result.stdout
    assert "no WRITE on the dead-letter topic orders" in result.stdout


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, serving(broker_with()) as broker:
        port = taken.getsockname()[1]
        result = doctor(tmp_path, broker.port, "-o", "json", admin={"port": port})
    assert result.exit_code == 1
    assert f"cannot listen on 127.0.0.1:{port} (admin.port)" in findings(result)["ports"]["found"]


def test_a_port_of_a_further_slot_that_is_taken(tmp_path: Path) -> None:
    first = free_ports(40)
    listen = {"bootstrap_port": first, "port_base": first + 1}
    with (
        socket.create_server(("127.0.0.1", first + 1 + 20 + 1)),
        serving(broker_with()) as broker,
    ):
        slots = {"slots_per_broker": 2, "port_step": 20}
        result = doctor(tmp_path, broker.port, "-o", "json", listen=listen | slots)
    assert result.exit_code == 1
    assert f"cannot listen on 127.0.0.1:{first + 22}" in findings(result)["ports"]["found"]


def test_files_of_logins_are_read(tmp_path: Path) -> None:
    rules = [{"principal": "orders", "identity": "shop"}]
    identities = {"shop": {"username": "shop", "mechanism": "PLAIN", "password": "none"}}
    written = yaml.safe_dump({"rules": rules, "identities": identities})
    (tmp_path / "identities.yaml").write_text(written)
    authentication = {
        "mechanisms": ["SCRAM-SHA-256"],
        "identities_file": str(tmp_path / "identities.yaml"),
        "users_file": str(tmp_path / "none.yaml"),
    }
    first = free_ports(4)
    listen = {"bootstrap_port": first, "port_base": first + 1, "authentication": authentication}
    sasl = {"mechanism": "PLAIN", "username": "keyway", "password": "none"}
    upstream = {"bootstrap_servers": "127.0.0.1:1", "sasl": sasl}
    result = doctor(tmp_path, 1, listen=listen, upstream=upstream)
    assert result.exit_code == 2
    assert "listen.authentication.users_file" in result.stderr
    assert "No such file" in result.stderr


def test_a_redis_of_ones_own(tmp_path: Path) -> None:
    port = free_ports(1)
    state = {"redis_url": f"redis://127.0.0.1:{port}"}
    redis = EmbeddedRedis(tmp_path / "redis", port=port)
    with serving(broker_with()) as broker:
        redis.start()
        try:
            found = findings(doctor(tmp_path, broker.port, "-o", "json", state=state))
        finally:
            redis.stop()
        away = doctor(tmp_path, broker.port, "-o", "json", state=state)
    assert found["Redis persistence"]["found"] == "append-only file"
    assert found["clock"]["status"] == "ok"
    assert away.exit_code == 1
    assert findings(away)["Redis"]["mend"] == "start Redis, and check state.redis_url"


def test_a_redis_whose_user_may_not_ask_how_it_is_set(tmp_path: Path) -> None:
    """As in many that are rented: INFO and CONFIG are among the dangerous commands."""
    port = free_ports(1)
    state = {"redis_url": f"redis://keyway:hunter2@127.0.0.1:{port}"}
    with EmbeddedRedis(tmp_path / "redis", port=port) as redis, serving(broker_with()) as broker:
        with redis_client.Redis.from_url(redis.url) as admin:
            admin.acl_setuser(
                *("keyway", True),
                passwords=["+hunter2"],
                keys=["keyway:*"],
                categories=["+@all", "-@dangerous"],
            )
        found = findings(doctor(tmp_path, broker.port, "-o", "json", state=state))
    assert found["Redis"]["status"] == "warning"
    assert "does not tell how it is set: " in found["Redis"]["found"]
    assert found["Redis persistence"]["status"] == "skipped"
    assert found["clock"]["status"] == "ok"


def test_files_with_secrets_that_everybody_can_read() -> None:
    # A folder that others may not enter hides its files, as that of pytest does.
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    password = folder / "password"
    password.write_text("hunter2")
    identities = folder / "identities.yaml"
    shop = {"shop": {"password_file": str(password)}}
    rules = [{"principal": "anna", "identity": "shop"}]
    identities.write_text(yaml.safe_dump({"rules": rules, "identities": shop}))
    users = folder / "users.yaml"
    users.write_text("users: {}")
    first = free_ports(3)
    authentication = {
        "mechanisms": ["SCRAM-SHA-512"],
        "identities_file": str(identities),
        "users_file": str(users),
    }
    sections = {
        "upstream": {
            "bootstrap_servers": f"127.0.0.1:{first}",
            "sasl": {"username": "u", "password": "hunter2"},
        },
        "listen": {"bootstrap_port": first + 1, "authentication": authentication},
    }

    def warned() -> set[str]:
        rows = json.loads(doctor(folder, first, "-o", "json", **sections).stdout)["findings"]
        secrets = [row for row in rows if row["check"] == "secrets"]
        assert secrets
        assert {row["status"] for row in secrets} <= {"warning", "ok"}
        return {row["found"].rpartition("/")[2] for row in secrets if row["status"] == "warning"}

    assert warned() == {
        "keyway.yaml (keyway.yaml)",
        "password (listen.authentication.identities_file: shop.password_file)",
        "identities.yaml (listen.authentication.identities_file)",
        "users.yaml (listen.authentication.users_file)",
    }
    for path in folder.iterdir():
        path.chmod(0o640)
    assert warned() == set()
    shutil.rmtree(folder)


def test_a_java_that_does_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    command = tmp_path / "bin" / "java"
    command.parent.mkdir()
    command.write_text("no program")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with serving(broker_with()) as broker:
        java = findings(doctor(tmp_path, broker.port, "-o", "json"))["Java"]
    assert java["status"] == "warning", "a node alone does without"
    assert f"'{command}') (a node alone" in java["found"]
    assert java["mend"].startswith("install a Java runtime")


def test_a_file_that_is_none(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["doctor", "--config", str(tmp_path / "none.yaml")])
    assert result.exit_code == 2
    assert "No such file" in result.stderr
