"""Rows of REST about the node: the caller, members, topics, virtual brokers, connections,
configuration, audit.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StrictInt

from gateway.admin.rows import Body, OfNodes, Row

RoleName = Literal["viewer", "operator", "admin"]


class LoginBody(Body):
    """`token`: as `keyway token` printed it."""

    token: Annotated[str, Field(min_length=1, max_length=512)]


class CallerRow(Row):
    """The caller. `name` null: the node has no tokens, and all who reach it may do everything."""

    name: str | None
    role: RoleName
    groups: list[str]  # globs over the names of groups
    keys: bool  # keys of records are shown, beside their hash
    values: bool  # values of parked records are shown


class LoggedOut(Row):
    status: Literal["logged out"] = "logged out"


class MemberRow(Row):
    """One member, with its figures summed over its partitions that are in memory. `share`: the part
    of all key hashes that the ring gives it, 0 to 1; key filters may change that, and in the
    `silent_partitions` its keys are with other members, because it asks for nothing there.
    """

    group: str
    member_id: str
    client_id: str
    host: str
    epoch: int
    topics: list[str]
    share: float | None
    ready_keys: int
    in_flight: int
    draining_keys: int
    silent_partitions: int = 0
    connections: int
    last_heartbeat_ms: int  # Unix time


class MemberList(OfNodes):
    """One page, by member id. `next`: `after` of the next page."""

    group: str
    members: list[MemberRow]
    next: str | None = None


class GroupOnTopic(Row):
    group: str
    members: int  # that subscribe to the topic
    lag: int | None  # records; null: not known


class TopicRow(Row):
    """A topic that Key-Shared groups read. `lag`: the sum of those that are known."""

    topic: str
    partitions: int | None  # null: upstream does not have it
    leaderless: int  # partitions
    groups: list[GroupOnTopic]
    lag: int | None


class TopicList(Row):
    """One page, by name. `next`: `after` of the next page."""

    topics: list[TopicRow]
    next: str | None = None


BrokerState = Literal["up", "silent"]


class BrokerRow(Row):
    """A virtual broker. `state`: of the upstream broker, when the node asked it last."""

    broker: int
    address: str | None  # for clients; null: its port cannot be had, so clients are not told of it
    upstream: str
    state: BrokerState
    reason: str | None = None  # of the silence
    connections: int  # of clients
    partitions: int  # of topics that groups read, led by it


class BrokerList(Row):
    """One page, by id. `next`: `after` of the next page. `bootstrap`: the address of first contact,
    on each page.
    """

    bootstrap: str | None
    bootstrap_connections: int
    brokers: list[BrokerRow]
    next: str | None = None


NodeState = Literal["up", "leaving", "gone"]


class NodeRow(Row):
    """One of the nodes that share a Redis. `gone`: it was not heard of for 6 s; it is shown for an
    hour. `moving`: virtual brokers that it owns and is about to hand over; `placed`: those that an
    operator has moved to it. `drained`: by an operator, until it is undrained or restarted.
    `adopted`: the lowest generation that its clients were served with Metadata; 0: none has asked.
    """

    node: str
    state: NodeState
    admin: str | None  # where its REST listens, as its keyway.yaml says
    owns: list[int]
    moving: list[int]
    heard_ms: int  # ago
    drained: bool = False
    placed: list[int] = Field(default_factory=list)
    adopted: int | None = None  # null: it does not say so


class NodeList(Row):
    """`node`: the one that answers; null: it stands alone, and there are no others. `generation`
    grows with each change of owners.
    """

    node: str | None
    generation: int
    nodes: list[NodeRow]


class NodeProof(Row):
    """The answer of a node that another one asks who it is, before it passes a token on."""

    node: str
    proof: str  # 64 hex digits


NodeName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]


class NodeBody(Body):
    """`node`: its name, as `nodes.id` in its keyway.yaml says."""

    node: NodeName


class MoveBody(Body):
    """`broker`: the id of a virtual broker. `node` null: Keyway chooses the owner again."""

    broker: Annotated[StrictInt, Field(ge=0, lt=2**31)]
    node: NodeName | None


class ConnectionRow(Row):
    """A client's connection. `principal`: the name of its SASL exchange, where that shows one."""

    id: int
    client_id: str | None  # of its first request
    principal: str | None = None
    host: str
    port: int
    broker: int | None  # null: the bootstrap port
    since_ms: int  # Unix time
    in_flight: list[str]  # names of the APIs that are not answered yet, the first 20
    in_flight_requests: int
    bytes_in: int  # from the client
    bytes_out: int
    members: list[str]  # "group/member id" of the members it carries, the first 20


class ConnectionList(Row):
    """One page, by id. `next`: `after` of the next page."""

    connections: list[ConnectionRow]
    total: int
    next: str | None = None


class LimitRow(Row):
    """A rule of `limits`, and what the clients of one account have used since the start of the
    node. `who`: the principal, client id or address that has these limits for itself; null: all
    clients of the rule. Limits that are null are none.
    """

    rule: str
    per: Literal["rule", "principal", "client_id", "address"]
    who: str | None
    connections: int
    connections_max: int | None
    requests: int
    requests_per_s: int | None
    bytes_in: int
    bytes_in_per_s: int | None
    bytes_out: int
    bytes_out_per_s: int | None
    share_sessions: int
    share_sessions_max: int | None
    throttled_ms: int  # told to clients in throttle_time_ms
    muted: int  # requests that had to wait, as their client did not
    refused: int  # connections and share sessions
    wait_ms: int  # of a Fetch or Produce that came now
    reached: list[str]  # limits that make it wait, or refuse one more connection or share session


class LimitList(Row):
    """One page, in the order of the rules. `next`: `after` of the next page."""

    limits: list[LimitRow]
    total: int
    next: str | None = None


class TreeRow(Row):
    """A node of the tree: two subtrees, or clusters by their names, and the level of the links
    between them.
    """

    level: int
    children: list[TreeRow | str]


class LinkRow(Row):
    """A link: it copies the records of `source` at one level to the first of `targets` that
    answers.
    """

    source: str
    level: int
    targets: list[str]


class ClustersRow(Row):
    """The clusters' file, as it is now: the tree, its links, and the cluster that others take
    schemas from (null: schemas are not distributed).
    """

    file: str
    tree: TreeRow
    links: list[LinkRow]
    primary: str | None


class StatusRow(Row):
    """The status of a distribution, as `keyway distribute|offsets|schemas status -o json` prints
    it: all of it, or with parameters a part in the same form. `problems`: clusters that did not
    answer. `next`: of a part, `after` of the next page; only offsets have pages.
    """

    at_ms: int  # Unix time
    status: Any
    problems: list[str]
    next: str | None = None


class OptionDifference(Row):
    """`option`: like `groups.0.deliveries_max`; null: not there. Secrets are not shown."""

    option: str
    running: Any
    file: Any
    reload: bool  # a reload takes it over; false: a restart does


class ConfigRow(Row):
    """The configuration that runs, secrets replaced by stars. `problem`: why the file cannot be
    compared.
    """

    file: str | None  # null: the node runs with defaults
    config: dict[str, Any]
    differences: list[OptionDifference]
    problem: str | None = None


class PortCertificates(Row):
    """`reloaded`: false if the files cannot be used; `problem` says why, and the certificate of
    before stays in use. `expires_ms`: the first of them.
    """

    listener: str
    reloaded: bool
    problem: str | None
    expires_ms: int


class TlsReloadRow(Row):
    """Every port of the node with TLS."""

    listeners: list[PortCertificates]


class ReloadRow(Row):
    """`reloaded`: in effect now; `restart`: differ, and need a restart."""

    reloaded: list[str]
    restart: list[str]


class AuditRow(Row):
    """A change, or a refusal. `id`: later ones have higher ids, from 1 when the node starts. `who`
    null: nobody that the node knows.
    """

    id: int
    at_ms: int  # Unix time
    who: str | None
    role: RoleName | None
    address: str
    action: str
    group: str | None = None
    topic: str | None = None
    partition: int | None = None
    offsets: str | None = None
    target: str | None = None  # of an order about nodes: the node, or `1 to b`
    outcome: str
    count: int = 1  # refusals of callers without a token since the line before


class AuditList(Row):
    """One page, the latest first. `next`: `after` of the next page, with older ones. The log has
    them all; the node keeps the last ones in memory.
    """

    audit: list[AuditRow]
    next: str | None = None
