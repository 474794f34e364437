"""Which requests of clients stop here while topics grow, because they name new partitions.

- Hidden partitions do not exist for clients: whatever names one is answered as Kafka would.
  But a group's position there is the first record: Kafka gives them to members of KIP-848 groups
  before they have one, and such a member would begin where `auto.offset.reset` says.
- Of partitions that are shown, a consumer of a plain group sees what its group may (consumers.py):
  its Fetch and ListOffsets stop here.

Requests about groups tell which client is of which group, and a Fetch how far a group has come. One
stops until upstream has let its connection read the group and the topic: anybody can name them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from gateway.core.cluster.discovery import NO_TOPIC_ID
from gateway.core.repartition.consumers import (
    Client,
    ConsumerEnds,
    GroupsOfClients,
    MayRead,
)
from gateway.core.repartition.hiding import Shown
from gateway.core.repartition.limits import CLIENT_GROUPS_MAX
from gateway.core.repartition.named_partitions import NAMING_PARTITIONS, Named, named_in
from gateway.core.wire.apis import APIS, ApiKey
from gateway.core.wire.codec import decode_request
from gateway.core.wire.decode import PASSING_ROW_ELEMENTS
from gateway.core.wire.errors import TooManyElements, WireError
from gateway.core.wire.frames import parse_request_header
from gateway.core.wire.schema import Message

_READING: Final = frozenset({int(ApiKey.FETCH), int(ApiKey.LIST_OFFSETS)})
_NAMING_GROUPS: Final = frozenset(
    {
        int(ApiKey.OFFSET_COMMIT),
        int(ApiKey.OFFSET_FETCH),
        int(ApiKey.JOIN_GROUP),
        int(ApiKey.HEARTBEAT),
        int(ApiKey.SYNC_GROUP),
        int(ApiKey.CONSUMER_GROUP_HEARTBEAT),
    }
)
_NAMING: Final = NAMING_PARTITIONS | {int(ApiKey.OFFSET_FETCH)}
HIDDEN: Final = -1
NOT_KNOWN: Final[frozenset[str]] = frozenset()


@dataclass(slots=True)
class Screening:
    """What a node looks for. `ends`: by topic; `shown`: all topics of `ends` are in it."""

    shown: Shown = field(default_factory=dict)
    ends: dict[str, ConsumerEnds] = field(default_factory=dict)
    listens: bool = False  # to which groups clients name
    hears_all: Callable[[], bool] = lambda: True  # whether no other node hears of more of them
    groups: GroupsOfClients = field(default_factory=GroupsOfClients)
    _names: dict[bytes, str] = field(default_factory=dict)  # by topic id
    _needles: tuple[bytes, ...] = ()  # a request without any of these names no such topic
    _hides: bool = False

    def look_for(
        self,
        shown: Shown,
        hiding: Collection[str],
        ends: Mapping[str, ConsumerEnds],
        *,
        listens: bool,
    ) -> None:
        """`hiding`: the topics that have hidden partitions."""
        looked_for = {*hiding, *ends}
        self.shown = {name: shown[name] for name in looked_for}
        self._hides = bool(hiding)
        self.ends = dict(ends)
        self.listens = listens
        if not listens:
            self.groups = GroupsOfClients()
        self._names = {
            topic.topic_id: name
            for name, topic in self.shown.items()
            if topic.topic_id != NO_TOPIC_ID
        }
        self._needles = (*self._names, *(name.encode() for name in self.shown))

    @property
    def apis(self) -> frozenset[int]:
        """Keys of the requests that are looked at."""
        found: frozenset[int] = frozenset()
        if self._hides:
            found = _NAMING
        elif self.ends:
            found = _READING
        return found | _NAMING_GROUPS if self.listens else found

    def stops(
        self, client: Client, may_read: MayRead, api_key: int, version: int, payload: bytes
    ) -> bool:
        """Whether a request, without its size, stops here; so does one that cannot be read, for
        upstream may read it.
        """
        names_group = self.listens and api_key in _NAMING_GROUPS
        names_partition = api_key in _NAMING and any(needle in payload for needle in self._needles)
        if not (names_group or names_partition) or version < APIS[api_key].min_version:
            return False
        try:
            body_at = parse_request_header(payload).body_at
            body = decode_request(api_key, version, payload, body_at, PASSING_ROW_ELEMENTS)
        except TooManyElements:
            return False  # an honest request of very many partitions: no handler reads it either
        except WireError:
            return True
        if self.unproven(client, may_read, api_key, body):
            return True
        self.note(client, may_read, api_key, body)
        return names_partition and any(
            self.end_for(client, api_key, named) is not None for named in named_in(api_key, body)
        )

    def unproven(
        self, client: Client, may_read: MayRead, api_key: int, body: Message
    ) -> list[tuple[str, str]]:
        """What upstream has to let the client read before its request is believed."""
        claimed: list[tuple[str, str]] = []
        if self.listens and api_key in _NAMING_GROUPS and self.groups.tells(client):
            named = _groups_in(api_key, body)
            # The groups of so many are not remembered.
            claimed = [("group", group) for group in named if len(named) <= CLIENT_GROUPS_MAX]
        elif api_key == ApiKey.FETCH:
            claimed = [("topic", topic) for topic, *_ in self._fetches(client, body)]
        return [name for name in dict.fromkeys(claimed) if name not in may_read]

    def note(self, client: Client, may_read: MayRead, api_key: int, body: Message) -> None:
        """What a request tells about groups, as far as it is believed."""
        if self.listens and api_key in _NAMING_GROUPS:
            named = _groups_in(api_key, body)
            if len(named) <= CLIENT_GROUPS_MAX:
                named = [group for group in named if ("group", group) in may_read]
            self.groups.named(client, named)
        elif api_key == ApiKey.FETCH:
            known = self.groups.anywhere(client)
            for topic, ends, number, offset in self._fetches(client, body):
                if ("topic", topic) in may_read:
                    ends.fetches(known, number, offset)

    def _fetches(
        self, client: Client, body: Message
    ) -> Iterator[tuple[str, ConsumerEnds, int, int]]:
        """Of old partitions, by a client with groups that wait."""
        known = self.groups.anywhere(client)
        for named in named_in(int(ApiKey.FETCH), body) if known else ():
            topic = self.topic_of(named)
            ends = self.ends.get(topic)
            number = 0 if ends is None else ends.number(topic, named.partition)
            if ends is not None and number < ends.before and not known.isdisjoint(ends.waiting):
                yield topic, ends, number, named.row["FetchOffset"]

    def topic_of(self, named: Named) -> str:
        """Empty: it is not looked for."""
        if named.topic_id != NO_TOPIC_ID:
            return self._names.get(named.topic_id, "")
        return named.name if named.name in self.shown else ""

    def end_for(self, client: Client, api_key: int, named: Named) -> int | None:
        """The end of a partition for this client: HIDDEN, an offset, or None: upstream's."""
        topic = self.topic_of(named)
        if not topic:
            return None
        if named.partition >= self.shown[topic].partitions:
            return HIDDEN  # also one that does not exist: upstream would say the same
        ends = self.ends.get(topic)
        if ends is None or api_key not in _READING:
            return None
        number = ends.number(topic, named.partition)
        groups = self.groups.of(client) if self.hears_all() else NOT_KNOWN
        return ends.end_for(groups, number)


def _groups_in(api_key: int, body: Message) -> list[str]:
    if api_key == ApiKey.OFFSET_FETCH and body["Groups"]:
        return [row["GroupId"] for row in body["Groups"]]
    return [body["GroupId"]]
