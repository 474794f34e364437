from __future__ import annotations

import pytest
from redis.asyncio import Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.sentinel import SentinelManagedConnection

from dispatcher.store.address import SENTINELS_MAX, is_no_primary, read_address


def test_a_server_by_its_url() -> None:
    address = read_address("redis://user:hunt%2Fer2@host:7000/3")
    assert (address.where, address.secrets) == ("host:7000", ("hunt/er2",))
    pool = address.pool(socket_timeout=5, max_connections=7)
    assert issubclass(pool.connection_class, Connection)
    assert pool.max_connections == 7
    options = pool.connection_kwargs
    assert (options["host"], options["port"], options["db"]) == ("host", 7000, 3)
    assert (options["password"], options["socket_timeout"]) == ("hunt/er2", 5)
    assert issubclass(read_address("rediss://host").pool().connection_class, SSLConnection)
    assert read_address("unix:///run/r.sock").where == "/run/r.sock"
    assert read_address("unix:///r.sock").pool().connection_class is UnixDomainSocketConnection


def test_a_primary_by_its_sentinels() -> None:
    address = read_address(
        "redis+sentinel://user:hunter2@one:1,two,[::1]:3/my-master/4"
        "?sentinel_password=hunter3&sentinel_username=watch&health_check_interval=9"
    )
    assert address.sentinels == (("one", 1), ("two", 26379), ("::1", 3))
    assert address.where == "my-master of Sentinels one:1, two:26379, ::1:3"
    assert set(address.secrets) == {"hunter2", "hunter3"}
    assert "hunter" not in repr(address)
    pool = address.pool(socket_timeout=5)
    assert issubclass(pool.connection_class, SentinelManagedConnection)
    assert not issubclass(pool.connection_class, SSLConnection)
    options = pool.connection_kwargs
    assert (options["username"], options["password"], options["db"]) == ("user", "hunter2", 4)
    assert (options["socket_timeout"], options["health_check_interval"]) == (5, 9)
    sentinel = pool.sentinel_manager.sentinels[1]  # type: ignore[attr-defined]
    told = sentinel.connection_pool.connection_kwargs
    assert (told["host"], told["port"]) == ("two", 26379)
    assert (told["username"], told["password"]) == ("watch", "hunter3")


def test_sentinels_over_tls() -> None:
    pool = read_address("rediss+sentinel://one/m?ssl_ca_certs=/ca.pem").pool()
    assert issubclass(pool.connection_class, SSLConnection)
    assert pool.connection_kwargs["ssl_ca_certs"] == "/ca.pem"
    sentinel = pool.sentinel_manager.sentinels[0].connection_pool  # type: ignore[attr-defined]
    assert sentinel.connection_class is SSLConnection
    assert sentinel.connection_kwargs["ssl_ca_certs"] == "/ca.pem"
    plain = read_address("redis+sentinel://one/m").pool()
    sentinel = plain.sentinel_manager.sentinels[0].connection_pool  # type: ignore[attr-defined]
    assert sentinel.connection_class is Connection


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://u:hunter2@h", "no redis://, rediss://, unix:// or redis\\+sentinel:// URL"),
        ("hunter2", "no redis://"),
        ("redis://:hunter2/x@h", "no redis://"),
        ("redis+sentinel://u:hunter2@h", "no name of the primary"),
        ("redis+sentinel://u:hunter2@h/", "no name of the primary"),
        ("redis+sentinel://u:123/hunter2@h/m", "no redis://"),
        ("redis+sentinel://:hunter2/m/0@h", "no redis://"),
        ("redis+sentinel://u:hunter2@h/m/zero", "the number of its database"),
        ("redis+sentinel://u:hunter2@h/m/0/1", "the number of its database"),
        ("redis+sentinel://u:hunter2@h,,i/m", "a Sentinel is written as host"),
        ("redis+sentinel://u:hunter2@/m", "a Sentinel is written as host"),
        ("redis+sentinel://u:hunter2@h:port/m", "no redis://"),
        ("redis+sentinel://u:hunter2@h:70000/m", "no redis://"),
        ("redis+sentinel://u:hunter2@h/m?socket_timeout=x", "no redis://"),
        (f"redis+sentinel://{','.join('h' * (SENTINELS_MAX + 1))}/m", "more than 9 Sentinels"),
    ],
)
def test_what_is_no_address_is_refused_without_its_secret(url: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as refused:
        read_address(url)
    assert "hunter2" not in str(refused.value)


def test_who_does_not_write_says_so_also_within_a_script() -> None:
    assert is_no_primary("READONLY You can't write against a read only replica.")
    assert is_no_primary(
        "ERR Error running script (call to f_1): @user_script:5: -READONLY You can't write"
    )
    assert is_no_primary("NOREPLICAS Not enough good replicas to write.")
    assert is_no_primary("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is no.")
    assert not is_no_primary("NOSCRIPT No matching script.")
