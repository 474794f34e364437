"""Where Redis is: one server, or the primary among several, as their Sentinels name it.

    redis://host:6379/0, rediss://host:6379/0, unix:///run/redis.sock
    redis+sentinel://user:password@sentinel-1:26379,sentinel-2,sentinel-3/name/0

`name` is what the Sentinels call the primary; user and password are those of Redis, and the
parameters `sentinel_username` and `sentinel_password` those of the Sentinels. With rediss+sentinel
servers and Sentinels speak TLS. Other parameters are redis-py's, of the servers.

A connection ends with the first refusal to write: the server has become a replica, or its replicas
follow another one. The next connection goes to whatever the name of the server means by then, as a
managed service moves it, or to the primary as the Sentinels name it. A former primary would go on
to take writes that nobody keeps, so the store asks the Sentinels again and again (`primary_of`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from redis.asyncio import Connection, ConnectionPool, SSLConnection
from redis.asyncio.connection import AbstractConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool, SentinelManagedConnection
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import ResponseError

SENTINEL_PORT = 26_379
SENTINEL_S_MAX = 0.5  # for its answer; the others are asked after it, within the time of one call
SENTINELS_MAX = 9
SCHEMES = "redis://, rediss://, unix:// or redis+sentinel://"

_SENTINEL = {"redis+sentinel": "redis", "rediss+sentinel": "rediss"}
# redis-py 8 would begin with HELLO 3, which servers before 6.0, and some proxies, refuse.
_RESP = 2
_OF_SENTINELS = ("sentinel_username", "sentinel_password")


@dataclass(frozen=True, slots=True, repr=False)
class RedisAddress:
    """The address in a URL. `where` holds no secrets; `secrets` are not to be shown."""

    where: str
    secrets: tuple[str, ...]
    options: dict[str, Any]  # of a connection to a server
    sentinels: tuple[tuple[str, int], ...] = ()  # empty: the server is in the options
    primary: str = ""  # as the Sentinels call it
    sentinel_options: dict[str, str] | None = None

    def __repr__(self) -> str:
        return f"RedisAddress({self.where})"

    def pool(self, **options: Any) -> ConnectionPool:  # noqa: ANN401
        """Connects when it is used. `options` are redis-py's, and win over those of the URL."""
        merged = {"protocol": _RESP, **self.options, **options}
        if self.sentinels:
            return _PrimaryPool(self, merged)
        plain = merged.get("connection_class", Connection)
        return ConnectionPool(**{**merged, "connection_class": _LEAVING.get(plain, plain)})


def read_address(url: str) -> RedisAddress:
    """Raises ValueError for a URL that is none (without showing it: it may hold a password)."""
    try:
        if urlsplit(url).scheme in _SENTINEL:
            return _of_sentinels(url)
        options: dict[str, Any] = dict(parse_url(url))
    except ValueError as error:
        if isinstance(error, _Refused):
            raise
        raise ValueError(f"no {SCHEMES} URL") from None
    where = options.get("path") or f"{options.get('host')}:{options.get('port', 6379)}"
    return RedisAddress(where, _secrets(options), options)


class _Refused(ValueError):
    """The URL is refused. The words show nothing of it."""


def _of_sentinels(url: str) -> RedisAddress:
    said = urlsplit(url)
    if "@" in said.path:
        raise ValueError  # The rest of a password with a slash in it; its start passes for a host.
    user, _, hosts = said.netloc.rpartition("@")
    sentinels = tuple(_place(sentinel) for sentinel in hosts.split(","))
    if len(sentinels) > SENTINELS_MAX:
        raise _Refused(f"more than {SENTINELS_MAX} Sentinels")
    name, _, database = said.path.removeprefix("/").partition("/")
    if not name:
        raise _Refused("no name of the primary behind the Sentinels' addresses, as in .../mymaster")
    if database and not database.isdecimal():
        raise _Refused("behind the name of the primary comes the number of its database, as in /0")
    asked = parse_qsl(said.query)
    rest = urlencode([parameter for parameter in asked if parameter[0] not in _OF_SENTINELS])
    server = f"{_SENTINEL[said.scheme]}://{user}{'@' if user else ''}primary/{database}?{rest}"
    options: dict[str, Any] = dict(parse_url(server))
    del options["host"]
    of_sentinels = {
        parameter.removeprefix("sentinel_"): text
        for parameter, text in asked
        if parameter in _OF_SENTINELS
    }
    return RedisAddress(
        f"{unquote(name)} of Sentinels {', '.join(f'{host}:{port}' for host, port in sentinels)}",
        (*_secrets(options), *_secrets(of_sentinels)),
        options,
        sentinels,
        unquote(name),
        of_sentinels,
    )


def _place(said: str) -> tuple[str, int]:
    """Raises ValueError."""
    place = urlsplit(f"//{said}")
    if not place.hostname or place.path:
        raise _Refused("a Sentinel is written as host or host:port, with commas between")
    return unquote(place.hostname), place.port or SENTINEL_PORT


def _secrets(options: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(value) for name, value in options.items() if value and "password" in name)


class _Leaves(AbstractConnection):
    """Ends with the first refusal to write. Its pool would keep it for ever: the machine of a
    former primary lives on.
    """

    async def read_response(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        try:
            return await super().read_response(*args, **options)
        except ResponseError as error:
            if not is_no_primary(str(error)):
                raise
            said = str(error)
        await self.disconnect()
        raise ConnectionLost(f"it is not the primary any more: {said}")


class _Server(_Leaves, Connection): ...


class _TlsServer(_Leaves, SSLConnection): ...


class _Primary(_Leaves, SentinelManagedConnection): ...


class _TlsPrimary(_Primary, SSLConnection): ...


_LEAVING: dict[type[AbstractConnection], type[AbstractConnection]] = {
    Connection: _Server,
    SSLConnection: _TlsServer,
}


def is_no_primary(refusal: str) -> bool:
    """The answer of a server that does not write, perhaps in the middle of a script's."""
    return any(word in refusal for word in ("READONLY ", "NOREPLICAS ", "MASTERDOWN "))


async def primary_of(pool: ConnectionPool) -> tuple[str, int] | None:
    """The primary as the Sentinels have it now; None: there are no Sentinels. If it is another one
    than before, the pool's idle connections end. Raises RedisError.
    """
    if not isinstance(pool, _PrimaryPool):
        return None
    host, port = await pool.get_master_address()  # type: ignore[no-untyped-call]
    return str(host), int(port)


class _PrimaryPool(SentinelConnectionPool):
    def __init__(self, address: RedisAddress, options: dict[str, Any]) -> None:
        tls = options.pop("connection_class", None) is SSLConnection
        of_tls = {name: value for name, value in options.items() if name.startswith("ssl_")}
        sentinels = Sentinel(  # type: ignore[no-untyped-call]
            address.sentinels,
            sentinel_kwargs={
                "socket_timeout": SENTINEL_S_MAX,
                "socket_connect_timeout": SENTINEL_S_MAX,
                "retry": Retry(NoBackoff(), 0),
                "protocol": _RESP,
                **({"ssl": True, **of_tls} if tls else {}),
                **(address.sentinel_options or {}),
            },
        )
        super().__init__(  # type: ignore[no-untyped-call]
            address.primary,
            sentinels,
            connection_class=_TlsPrimary if tls else _Primary,
            **options,
        )

    async def aclose(self) -> None:
        await super().aclose()
        await self.sentinel_manager.aclose()
