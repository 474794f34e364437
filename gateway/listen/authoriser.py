"""The permissions of a client: upstream's own ACLs, asked on its connection (see Decisions).

The share APIs are answered by the gateway, so it asks upstream first, on the client's own upstream
connection and thus under the client's own identity. Metadata returns the operations the caller is
authorised for on topics. DescribeGroups would for a group, but only on its coordinator and once
that has loaded; READ is therefore asked by a Heartbeat of a member that does not exist: every
broker checks READ on the group before anything else, and it changes nothing. An answer is kept for
AUTHORISATION_MS_MAX; a revoked ACL takes effect after that at the latest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from gateway.core.cluster.acl import DESCRIBE, HEARTBEAT_VERSION, READ, heartbeat_of_nobody
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.listen.answering import Client
from gateway.listen.limits import AUTHORISATION_MS_MAX, AUTHORISATIONS_MAX

_DESCRIBE_GROUPS_VERSION = 5  # v6 answers GROUP_ID_NOT_FOUND for a group upstream does not hold
_METADATA_VERSION = 9

_Verdict = tuple[int, int]  # operations as Kafka's bit field, when it was asked (now_ms)


@dataclass(slots=True)
class Authoriser:
    now_ms: Callable[[], int]
    _verdicts: dict[int, dict[tuple[str, str], _Verdict]] = field(default_factory=dict)

    async def may_read_group(
        self, connection: Client, group: str, *, denial_remembered: bool = True
    ) -> bool:
        known = self._known(connection, "read", group)
        if known or (known is not None and denial_remembered):
            return bool(known)
        answer = await connection.ask_upstream(
            ApiKey.HEARTBEAT,
            HEARTBEAT_VERSION,
            heartbeat_of_nobody(group),
        )
        denied = answer["ErrorCode"] == ErrorCode.GROUP_AUTHORIZATION_FAILED
        return bool(self._learn(connection, "read", group, 0 if denied else 1))

    async def may_describe_group(self, connection: Client, group: str) -> bool:
        operations = await self.group_operations(connection, group)
        return bool(operations & (1 << DESCRIBE | 1 << READ))

    async def group_operations(
        self, connection: Client, group: str, *, wanted: int | None = None
    ) -> int:
        """`wanted`: an operation whose denial is not taken from memory."""
        known = self._known(connection, "group", group)
        if known is not None and (wanted is None or known & 1 << wanted):
            return known
        answer = await connection.ask_upstream(
            ApiKey.DESCRIBE_GROUPS,
            _DESCRIBE_GROUPS_VERSION,
            {"Groups": [group], "IncludeAuthorizedOperations": True},
        )
        described = answer["Groups"][0]
        error = described["ErrorCode"]
        if error not in (ErrorCode.NONE, ErrorCode.GROUP_AUTHORIZATION_FAILED):
            # Not (yet) the coordinator: DESCRIBE was checked first, the operations are not told.
            return 1 << DESCRIBE
        allowed = described["AuthorizedOperations"] if error == ErrorCode.NONE else 0
        return self._learn(connection, "group", group, allowed)

    async def denied_topics(
        self, connection: Client, topics: Iterable[str], operation: int = READ
    ) -> set[str]:
        """The topics of `topics` that this client may not read (or use for `operation`). A topic
        that does not exist is not denied: there is nothing.
        """
        rights = await self.topic_rights(connection, topics, operation)
        return {name for name, right in rights.items() if right is False}

    async def topic_rights(
        self, connection: Client, topics: Iterable[str], operation: int = READ
    ) -> dict[str, bool | None]:
        """Whether this client may read each topic (or use it for `operation`). None: upstream's
        broker does not know the topic, or not yet, and has said nothing about it.
        """
        operations = {name: self._known(connection, "topic", name) for name in topics}
        unknown = [name for name, known in operations.items() if known is None]
        if unknown:
            answer = await connection.ask_upstream(
                ApiKey.METADATA,
                _METADATA_VERSION,
                {
                    "Topics": [{"Name": name} for name in unknown],
                    "AllowAutoTopicCreation": False,
                    "IncludeTopicAuthorizedOperations": True,
                },
            )
            for topic in answer["Topics"]:
                if topic["ErrorCode"] in (ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED):
                    allowed = topic["TopicAuthorizedOperations"] if topic["ErrorCode"] == 0 else 0
                    operations[topic["Name"]] = self._learn(
                        connection, "topic", topic["Name"], allowed
                    )
        return {
            name: None if known is None else bool(known & (1 << operation))
            for name, known in operations.items()
        }

    def readable_until_ms(self, connection: Client, topics: Iterable[str]) -> int:
        """Until when it is known that this client may read all of `topics`; 0: it is not known."""
        verdicts = self._verdicts.get(connection.id, {})
        asked_ms = [
            verdict[1]
            if (verdict := verdicts.get(("topic", name))) and verdict[0] & 1 << READ
            else 0
            for name in topics
        ]
        return min(asked_ms, default=0) + AUTHORISATION_MS_MAX if all(asked_ms) else 0

    def _known(self, connection: Client, kind: str, name: str) -> int | None:
        verdict = self._verdicts.get(connection.id, {}).get((kind, name))
        if verdict is None or self.now_ms() - verdict[1] >= AUTHORISATION_MS_MAX:
            return None
        return verdict[0]

    def _learn(self, connection: Client, kind: str, name: str, operations: int) -> int:
        verdicts = self._verdicts.setdefault(connection.id, {})
        if len(verdicts) >= AUTHORISATIONS_MAX:
            verdicts.clear()
        verdicts[(kind, name)] = (operations, self.now_ms())
        return operations

    def connection_lost(self, connection: int) -> None:
        self._verdicts.pop(connection, None)
