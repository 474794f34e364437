"""Several nodes in front of one Kafka, with one Redis; the network between may fall silent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from gateway.core.wire.apis import ApiKey
from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.process import free_ports
from gateway.embedded.redis import EmbeddedRedis
from gateway.routing.owners import SharedOwners
from gateway.routing.shared_table import KEY, SharedTable
from tests.chaos.nodes.proxy import Proxies
from tests.rig.clients.wire_client import WireClient
from tests.rig.gateway_process import BROKER_IDS_MAX, GatewayProcess, Settings
from tests.rig.groups import GROUPS
from tests.rig.patience import wait_until
from tests.rig.sentinels import SentinelSite

# A record that meets a death with each delivery is not parked.
KEPT: Settings = {**GROUPS[-1], "deliveries_max": 100}
LISTENS, ADVERTISED = "127.0.0.1", "127.0.0.3"  # the proxies are at the second


class Nodes:
    """`names`: of the nodes; one that is not started by `running` may be added later. `proxied`:
    clients and Redis are reached through proxies. `sentinels` (they run): their Redis, in place of
    one of its own. `upstreams`: of nodes that find Kafka at other addresses than its own.
    """

    def __init__(
        self,
        directory: Path,
        kafka: KafkaCluster,
        names: str,
        *,
        proxied: bool = False,
        slots: int = 1,
        admin: Settings | None = None,
        sentinels: SentinelSite | None = None,
        upstreams: Mapping[str, str] | None = None,
    ) -> None:
        self._sentinels = sentinels
        self._upstreams = upstreams or {}
        self._admin = admin or {}
        self.kafka = kafka
        self._slots = slots
        self._redis_ports: dict[str, int] = {}
        self.redis = EmbeddedRedis(directory / "redis", port=free_ports(1))
        self.proxies = Proxies() if proxied else None
        self.nodes = {name: self._node(directory / name, name) for name in names}

    def _node(self, directory: Path, name: str) -> GatewayProcess:
        at = self._redis_ports[name] = free_ports(1) if self.proxies else self.redis.port
        listen: Settings = {}
        if self._slots > 1:
            listen = {"slots_per_broker": self._slots, "port_step": len(self.kafka.brokers)}
        if self.proxies:
            listen["advertised_host"] = ADVERTISED
        return GatewayProcess(
            directory,
            self._upstreams.get(name, self.kafka.bootstrap_servers),
            groups=[*GROUPS[:-1], KEPT],
            redis_url=self._sentinels.url if self._sentinels else f"redis://127.0.0.1:{at}/0",
            nodes={"id": name},
            admin=self._admin,
            listen=listen,
        )

    @contextmanager
    def running(self, names: str) -> Iterator[None]:
        with ExitStack() as stack:
            if self._sentinels is None:
                stack.enter_context(self.redis)
            if self.proxies is not None:
                stack.enter_context(self.proxies.running())
                self._open_ways(self.proxies)
            for node in self.nodes.values():
                stack.callback(node.stop)
            for name in names:
                self.nodes[name].spawn()
            for name in names:
                self.nodes[name].wait_ready()
            self.wait_for_owners(names)
            self._wait_until_told(names)
            yield

    def _open_ways(self, proxies: Proxies) -> None:
        for name, node in self.nodes.items():
            redis = ("127.0.0.1", self.redis.port)
            proxies.open(f"{name} redis", {("127.0.0.1", self._redis_ports[name]): redis})
            first = int(node.bootstrap.rpartition(":")[2])
            ports = [first, *range(node.port_base + 1, node.port_base + BROKER_IDS_MAX)]
            proxies.open(f"{name} clients", {(ADVERTISED, port): (LISTENS, port) for port in ports})

    @property
    def bootstrap(self) -> str:
        addresses = [node.bootstrap for node in self.nodes.values()]
        if self.proxies is not None:
            addresses = [address.replace(LISTENS, ADVERTISED) for address in addresses]
        return ",".join(addresses)

    def owners(self) -> dict[int, str]:
        """Of virtual brokers that do not move at the moment."""
        with self._connected() as client:
            stored = client.hget(KEY, "owners")
        assert isinstance(stored, bytes | None)
        said = json.loads(stored or '{"owners": {}, "next": {}}')
        return (
            {} if said["next"] else {int(broker): owner for broker, owner in said["owners"].items()}
        )

    def _connected(self) -> Redis:
        if self._sentinels is not None:
            return self._sentinels.connected(self._sentinels.primary())
        return Redis.from_url(self.redis.url)

    def order(self, work: Callable[[SharedOwners], Awaitable[None]]) -> None:
        """As an operator, by somebody who owns nothing."""

        async def told() -> None:
            async with AsyncRedis.from_url(self.redis.url) as client:
                table = SharedTable(client, "operator")
                owners = SharedOwners("operator", table, serves=dict, agreed=dict, facts=dict)
                await work(owners)
                await owners.leave()

        asyncio.run(told())

    def wait_for_owners(self, names: str) -> None:
        """All brokers have owners, these are among them as far as there are enough brokers."""
        count = len(self.kafka.brokers) * self._slots

        def level() -> bool:
            found = list(self.owners().values())
            loads = [found.count(name) for name in names]
            return sum(loads) == count == len(found) and max(loads) - min(loads) <= 1

        wait_until(level, what=f"owners {names}: {self.owners()}", deadline_s=30)

    def _wait_until_told(self, names: str) -> None:
        """Until the nodes tell clients of the owners that the table has: a client that does not
        look again, as a raw connection, would meet a node that hands its broker over.
        """

        def as_stored(node: GatewayProcess) -> bool:
            owners = self.owners()
            with WireClient(node.bootstrap) as client:
                brokers = client.call(ApiKey.METADATA, 12, {"Topics": []})["Brokers"]
            return bool(brokers) and all(
                broker["NodeId"] in owners
                and self.nodes[owners[broker["NodeId"]]].serves(broker["Port"])
                for broker in brokers
            )

        def told() -> bool:
            return all(as_stored(self.nodes[name]) for name in names)

        wait_until(told, what=f"owners told by {names}", deadline_s=30)
