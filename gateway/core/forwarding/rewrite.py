"""Responses that show upstream addresses, and ApiVersions, rewritten for clients.

Two steps, with the shell between them: `read` names the brokers that a response shows, the shell
opens a listener for each of them, `write` puts those addresses in. A broker without one is
left out: no upstream address reaches a client.

DescribeConfigs is here for a broker's own `listeners`, `advertised.listeners` and the like: those
two show the virtual broker, and others, such as `controller.quorum.voters`, nothing.
DescribeTopicPartitions shows broker ids only; it is here because partitions may be hidden
(gateway/core/repartition/hiding.py).

Where brokers have several slots, Metadata shows all virtual brokers, and as leaders those of the
partitions' slots; so do the new leaders that Produce and Fetch name. Replicas keep upstream's ids,
which are slots, too. DescribeCluster, which admin tools ask, shows upstream's ids alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from gateway.core.cluster.discovery import NO_TOPIC_ID
from gateway.core.cluster.slots import ONE_SLOT, Slots
from gateway.core.cluster.topology import Broker
from gateway.core.forwarding.broker_names import named_for_client
from gateway.core.forwarding.effects import Rewrite, Rules
from gateway.core.forwarding.metadata_answer import MetadataAnswer
from gateway.core.forwarding.served_apis import MERGED, offered
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.codec import decode_response, encode_response
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.frames import (
    SIZE_BYTES,
    parse_response_header,
    response_frame,
    response_head,
)
from gateway.core.wire.schema import Message


class Address(NamedTuple):
    """Where clients reach a virtual broker."""

    host: str
    port: int


Addresses = Mapping[int, Address]  # by broker id


@dataclass(frozen=True, slots=True)
class Shown:
    """A response, decoded. `version` is that of the response, which an older upstream may lower."""

    api_key: int
    version: int
    correlation_id: int
    message: Message
    brokers: tuple[Broker, ...]  # the ones it shows, at their upstream addresses
    # Of Metadata. `message` has those of its topics that are open.
    metadata: MetadataAnswer | None = None


_OFFERS_MAX: Final = 64  # brokers times versions that clients ask in
_NO_NODE: Final = -1
_BROKER_RESOURCE: Final = 4
_LISTENER_CONFIGS: Final = frozenset({"listeners", "advertised.listeners"})
_ADDRESS_CONFIGS: Final = _LISTENER_CONFIGS | frozenset(
    {
        "host.name",
        "advertised.host.name",
        "controller.quorum.voters",
        "zookeeper.connect",
    }
)
_ADDRESS_CONFIG_SUFFIX: Final = "bootstrap.servers"


def read(response: Rewrite) -> Shown:
    """Raises WireError."""
    key, version = response.api_key, response.version
    header = parse_response_header(key, version, response.payload)
    body_at = header.body_at
    if key == ApiKey.API_VERSIONS:
        version = _api_versions_version(response.payload, body_at, version)
    if key == ApiKey.METADATA:
        metadata = MetadataAnswer(version, response.payload, body_at)
        brokers = _brokers(key, version, metadata.message)
        return Shown(key, version, header.correlation_id, metadata.message, brokers, metadata)
    message = decode_response(key, version, response.payload, body_at)
    return Shown(key, version, header.correlation_id, message, _brokers(key, version, message))


def write(
    shown: Shown,
    addresses: Addresses,
    rules: Rules,
    asked: int | None = None,
    *,
    secure: bool = False,
) -> bytes:
    """The frame for the client, with its size prefix. Changes the message of `shown`. `asked`: the
    virtual broker; None: the bootstrap port. `secure`: the client speaks TLS.
    """
    message, slots = shown.message, rules.slots
    if shown.api_key == ApiKey.API_VERSIONS:
        _clamp(message, rules)
    elif shown.api_key == ApiKey.METADATA:
        assert shown.metadata is not None
        message["Brokers"] = _moved(message["Brokers"], "NodeId", addresses, slots)
        if slots.count > 1:
            shown.metadata.open()
            _move_leaders(message, slots)
        return _metadata_frame(shown, shown.metadata)
    elif shown.api_key == ApiKey.DESCRIBE_CLUSTER:
        message["Brokers"] = _moved(message["Brokers"], "BrokerId", addresses)
    elif shown.api_key == ApiKey.FIND_COORDINATOR:
        _move_coordinators(message["Coordinators"] if shown.version >= 4 else [message], addresses)
    elif shown.api_key == ApiKey.DESCRIBE_QUORUM:
        _move_listeners(message["Nodes"], addresses)
    elif shown.api_key == ApiKey.DESCRIBE_CONFIGS:
        if asked is not None and slots.is_extra(asked):
            named_for_client(message["Results"], {str(slots.upstream(asked)): str(asked)})
        sasl = rules.sasl or rules.login
        protocol = ("SASL_" if sasl else "") + ("SSL" if secure else "PLAINTEXT")
        _move_configs(message, addresses, protocol)
    elif shown.api_key != ApiKey.DESCRIBE_TOPIC_PARTITIONS:
        assert shown.api_key in (ApiKey.PRODUCE, ApiKey.FETCH), shown.api_key
        message["NodeEndpoints"] = _moved(message["NodeEndpoints"], "NodeId", addresses, slots)
        _move_new_leaders(shown.api_key, message, slots)
    body = encode_response(shown.api_key, shown.version, message)
    return response_frame(shown.api_key, shown.version, shown.correlation_id, body)


def _metadata_frame(shown: Shown, metadata: MetadataAnswer) -> bytes:
    parts = metadata.body()
    size = sum(len(part) for part in parts)
    head = response_head(shown.api_key, shown.version, shown.correlation_id, size)
    return b"".join([head, *parts])


class OfferedApis:
    """Answers of ApiVersions for clients. Each new connection asks for one, and all of a broker
    say the same: it is rewritten once (0.5 ms), and known by its bytes.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._known: dict[tuple[int, bytes], bytes] = {}  # by version and upstream's body

    def frame(self, response: Rewrite) -> bytes:
        """The frame for the client, with its size prefix. Raises WireError."""
        key, version = response.api_key, response.version
        header = parse_response_header(key, version, response.payload)
        ours = self.body(response, header.body_at)
        return response_frame(key, version, header.correlation_id, ours)

    def body(self, response: Rewrite, body_at: int) -> bytes:
        """What stands behind the header of the frame. Raises WireError."""
        version, theirs = response.version, response.payload[body_at:]
        ours = self._known.get((version, theirs))
        if ours is None:
            frame = write(read(response), {}, self._rules)
            ours = frame[SIZE_BYTES + body_at :]
            if len(self._known) >= _OFFERS_MAX:
                self._known.clear()
            self._known[version, theirs] = ours
        return ours


def _api_versions_version(payload: bytes, body_at: int, version: int) -> int:
    # A broker that does not know the version it was asked in answers in v0 (KIP-511).
    error = int.from_bytes(payload[body_at : body_at + 2], "big", signed=True)
    return 0 if error == ErrorCode.UNSUPPORTED_VERSION else version


def _brokers(key: int, version: int, message: Message) -> tuple[Broker, ...]:
    nodes: list[Message] = []
    id_field = "NodeId"
    if key == ApiKey.METADATA:
        nodes = message["Brokers"]
    elif key == ApiKey.DESCRIBE_CLUSTER:
        id_field = "BrokerId"
        nodes = [node for node in message["Brokers"] if not node["IsFenced"]]
        if message["EndpointType"] != 1:
            nodes = []  # controllers: no client is served by them
    elif key == ApiKey.FIND_COORDINATOR:
        nodes = message["Coordinators"] if version >= 4 else [message]
    elif key in (ApiKey.PRODUCE, ApiKey.FETCH):
        nodes = message["NodeEndpoints"]
    return tuple(
        Broker(id=node[id_field], host=node["Host"], port=node["Port"])
        for node in nodes
        if node[id_field] >= 0 and node["Host"]
    )


def _moved(
    nodes: list[Message], id_field: str, addresses: Addresses, slots: Slots = ONE_SLOT
) -> list[Message]:
    moved = []
    for node in nodes:
        for virtual in slots.all_of(node[id_field]):
            address = addresses.get(virtual)
            if address is not None:
                row = {**node, id_field: virtual, "Host": address.host, "Port": address.port}
                moved.append(row)
    return moved


def _move_leaders(metadata: Message, slots: Slots) -> None:
    for topic in metadata["Topics"]:
        for partition in topic["Partitions"]:
            _move_leader(topic, partition, partition["PartitionIndex"], slots)


def _move_leader(topic: Message, row: Message, partition: int, slots: Slots) -> None:
    """A client that asks in a version without topic ids is not a share consumer's: slot 0 serves
    it.
    """
    topic_id = topic.get("TopicId", NO_TOPIC_ID)
    if topic_id != NO_TOPIC_ID and row["LeaderId"] >= 0:
        row["LeaderId"] = slots.virtual(row["LeaderId"], slots.slot(topic_id, partition))


def _move_new_leaders(key: int, message: Message, slots: Slots) -> None:
    if slots.count == 1:
        return
    partitions, index = ("Partitions", "PartitionIndex")
    if key == ApiKey.PRODUCE:
        partitions, index = ("PartitionResponses", "Index")
    for topic in message["Responses"]:
        for partition in topic[partitions]:
            _move_leader(topic, partition["CurrentLeader"], partition[index], slots)


def _move_coordinators(coordinators: list[Message], addresses: Addresses) -> None:
    for found in coordinators:
        address = addresses.get(found["NodeId"])
        if address is not None:
            found["Host"], found["Port"] = address
            continue
        if found["NodeId"] >= 0 and not found["ErrorCode"]:
            found["ErrorCode"] = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        found["NodeId"], found["Host"], found["Port"] = _NO_NODE, "", -1


def _move_listeners(nodes: list[Message], addresses: Addresses) -> None:
    for node in nodes:
        address = addresses.get(node["NodeId"])
        if address is None:
            node["Listeners"] = []
            continue
        for listener in node["Listeners"]:
            listener["Host"], listener["Port"] = address


def _move_configs(message: Message, addresses: Addresses, protocol: str) -> None:
    for resource in message["Results"]:
        if resource["ResourceType"] == _BROKER_RESOURCE:
            _move_configs_of(resource, addresses, protocol)


def _move_configs_of(broker: Message, addresses: Addresses, protocol: str) -> None:
    """What cannot be moved is hidden as Kafka hides a password: without its value."""
    name = broker["ResourceName"]
    address = next((place for number, place in addresses.items() if str(number) == name), None)
    for config in broker["Configs"]:
        if not _has_address(config["Name"]):
            continue
        listener = None
        if address is not None and config["Name"] in _LISTENER_CONFIGS:
            host = f"[{address.host}]" if ":" in address.host else address.host
            listener = f"{protocol}://{host}:{address.port}"
        else:
            config["IsSensitive"] = True
        for shown in (config, *config["Synonyms"]):
            shown["Value"] = None if shown["Value"] is None else listener


def _has_address(config: str) -> bool:
    # `listener.name.<listener>.<config>` sets one for a single listener.
    return config in _ADDRESS_CONFIGS or config.endswith(_ADDRESS_CONFIG_SUFFIX)


def _clamp(message: Message, rules: Rules) -> None:
    served = []
    for api in message["ApiKeys"]:
        versions = offered(api["ApiKey"], api["MinVersion"], api["MaxVersion"], rules)
        if versions is not None:
            served.append({**api, "MinVersion": versions[0], "MaxVersion": versions[1]})
    if not message["ErrorCode"]:
        for key, (low, high) in rules.local.items():
            if key in MERGED:
                continue  # as far as upstream has it, above
            served.append({"ApiKey": key, "MinVersion": low, "MaxVersion": high})
    message["ApiKeys"] = sorted(served, key=_api_key)


def _api_key(api: Message) -> int:
    key: int = api["ApiKey"]
    return key
