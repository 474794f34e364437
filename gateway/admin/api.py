"""The table of all routes of REST: the models of each, the role it takes, its name in the audit.

openapi.py describes it for other programs, access.py guards by it. The server has these routes and
no others; a test compares them.
"""

# Long: a row for each route.
from __future__ import annotations

from dispatcher.core.model import Reason
from gateway.admin.dashboard.rows import Overview
from gateway.admin.limits import (
    ID_MAX,
    KEY_BYTES_MAX,
    KEYS_MAX,
    NONCE_CHARS_MAX,
    PAGE_HEADERS_MAX,
    PAGE_ROWS_MAX,
    PAGE_WINDOWS_MAX,
    RUNS_MAX,
)
from gateway.admin.node_rows import (
    AuditList,
    BrokerList,
    CallerRow,
    ClustersRow,
    ConfigRow,
    ConnectionList,
    LimitList,
    LoggedOut,
    LoginBody,
    MemberList,
    MoveBody,
    NodeBody,
    NodeList,
    NodeProof,
    ReloadRow,
    StatusRow,
    TlsReloadRow,
    TopicList,
)
from gateway.admin.operation import EVENTS, GROUP, JSON, METRICS_TEXT, Operation, Parameter
from gateway.admin.problems import DESCRIPTION
from gateway.admin.repartition_operations import REPARTITION_OPERATIONS
from gateway.admin.rows import (
    Alive,
    DeletedGroup,
    FilterChange,
    FilterPreview,
    GroupDescription,
    GroupList,
    HealthRow,
    KeyFilterRules,
    ParkedList,
    ReleaseBody,
    Released,
    SettingsBody,
    SettingsRow,
    SkipBody,
    Skipped,
    UnreadableList,
    ValueRow,
)
from gateway.admin.window_rows import (
    HistoryList,
    KeyList,
    PositionList,
    SeekBody,
    SeekResult,
    WindowList,
)
from gateway.config.admin import Role
from gateway.config.groups import FilterRules
from gateway.handlers.limits import GROUP_ID_CHARS_MAX


def _text(name: str, about: str, **schema: str | int | list[str]) -> Parameter:
    return Parameter(name, about, {"type": "string", **schema})


def _whole(name: str, about: str, least: int, most: int) -> Parameter:
    return Parameter(name, about, {"type": "integer", "minimum": least, "maximum": most})


def _limit(most: int) -> Parameter:
    return _whole("limit", "Rows of the page.", 1, most)


AFTER_NAME = _text("after", "The last name of the page before: its `next`.")
AFTER_ID = _whole("after", "The last id of the page before: its `next`.", 0, ID_MAX)
AFTER_BROKER = _whole("after", "The last broker of the page before: its `next`.", 0, 2**31 - 1)
AFTER_PLACE = _text(
    "after", "The `next` of the page before, like `orders-3`.", pattern=r"^[^\n]+-[0-9]{1,10}$"
)
AFTER_RECORD = _text(
    "after",
    "The `next` of the page before, like `orders-3-17`.",
    pattern=r"^[^\n]+-[0-9]{1,10}-[0-9]{1,19}$",
)
AFTER_OFFSET = _text("after", "The `next` of the page before.", pattern="^[A-Za-z0-9_-]+$")
NAME = _text("name", "Only names that hold this text.")
TOPIC = _text("topic", "Only this topic.")
PARTITION = _whole("partition", "Only this partition.", 0, 2**31 - 1)
REASON = _text(
    "reason",
    "Only records that were parked for this reason.",
    enum=[reason.value for reason in Reason],
)
KEY_GLOB = _text(
    "key",
    "Only keys that match this glob (`*`, `?`), for those who may see keys.",
    minLength=1,
    maxLength=KEY_BYTES_MAX,
)
HEADERS = Parameter(
    "headers",
    f"With the records' headers, for those who may see keys; {PAGE_HEADERS_MAX} rows at most.",
    {"type": "boolean"},
)
CLIENT_ID = _text("client_id", "Only client ids that hold this text.")
NAMES_PAGE = (NAME, AFTER_NAME, _limit(PAGE_ROWS_MAX))
PLACES_PAGE = (
    TOPIC,
    PARTITION,
    _text("state", "Only partitions in this state.", enum=["idle", "loading", "up"]),
    AFTER_PLACE,
)


OPERATIONS = (
    Operation(
        "GET",
        "/v1/groups",
        "The Key-Shared groups of the node, a page at a time.",
        GroupList,
        optional=(*NAMES_PAGE, _text("state", "Only groups in this state, like `Stable`.")),
    ),
    Operation("GET", "/v1/groups/{group}", "One group: members, windows, lag.", GroupDescription),
    Operation(
        "GET",
        "/v1/members",
        "The members of a group, a page at a time.",
        MemberList,
        query=(GROUP,),
        optional=(*NAMES_PAGE, CLIENT_ID),
    ),
    Operation(
        "GET",
        "/v1/windows",
        "A picture of each window of a group, a page at a time.",
        WindowList,
        query=(GROUP,),
        optional=(
            *PLACES_PAGE,
            _limit(PAGE_WINDOWS_MAX),
            _whole("runs", "Limit of the runs of a picture.", 1, RUNS_MAX),
        ),
    ),
    Operation(
        "GET",
        "/v1/keys",
        "One key: partition, owner, state, attempts, a page at a time. Without a key: the hot keys "
        "of the group, a ranking: its first `limit`, and no pages.",
        KeyList,
        query=(GROUP,),
        optional=(
            _text("key", "A key, if it is text.", maxLength=KEY_BYTES_MAX),
            _text("key_base64", "A key, any bytes.", contentEncoding="base64"),
            _text("key_hash", "Keys with this hash.", pattern="^[0-9a-fA-F]{8}$"),
            TOPIC,
            AFTER_RECORD,
            _limit(KEYS_MAX),
        ),
    ),
    Operation(
        "GET",
        "/v1/history",
        "The last 15 minutes of a group: lag, records produced, delivered and settled.",
        HistoryList,
        query=(GROUP,),
    ),
    Operation(
        "GET",
        "/v1/positions",
        "The positions of a group with their lag, a page at a time.",
        PositionList,
        query=(GROUP,),
        optional=(TOPIC, AFTER_PLACE, _limit(PAGE_ROWS_MAX)),
    ),
    Operation(
        "POST",
        "/v1/positions/seek",
        "Move positions of a group without members. Without `execute` it only shows the moves.",
        SeekResult,
        body=SeekBody,
        query=(GROUP,),
        role=Role.OPERATOR,
        action="positions.seek",
    ),
    Operation(
        "GET",
        "/v1/topics",
        "The topics that groups read, a page at a time.",
        TopicList,
        optional=NAMES_PAGE,
    ),
    *REPARTITION_OPERATIONS,
    Operation(
        "GET",
        "/v1/brokers",
        "The virtual brokers, a page at a time.",
        BrokerList,
        optional=(
            _text("state", "Only brokers in this state.", enum=["up", "silent"]),
            AFTER_BROKER,
            _limit(PAGE_ROWS_MAX),
        ),
    ),
    Operation("GET", "/v1/nodes", "The nodes that share a Redis, and what each owns.", NodeList),
    Operation(
        "GET",
        "/v1/nodes/proof",
        "A node proves to another node who it is, before that node passes on a token.",
        NodeProof,
        query=(_text("nonce", "A random number.", minLength=16, maxLength=NONCE_CHARS_MAX),),
        optional=(_text("caller", "The name of the token that is to be passed on."),),
        role=None,
    ),
    Operation(
        "POST",
        "/v1/nodes/drain",
        "The other nodes get all that a node owns, and it gets nothing more.",
        NodeList,
        body=NodeBody,
        role=Role.ADMIN,
        action="nodes.drain",
        whole=True,
    ),
    Operation(
        "POST",
        "/v1/nodes/undrain",
        "A drained node may own virtual brokers again.",
        NodeList,
        body=NodeBody,
        role=Role.ADMIN,
        action="nodes.undrain",
        whole=True,
    ),
    Operation(
        "POST",
        "/v1/nodes/move",
        "A virtual broker goes to a node, and stays there.",
        NodeList,
        body=MoveBody,
        role=Role.ADMIN,
        action="nodes.move",
        whole=True,
    ),
    Operation(
        "GET",
        "/v1/connections",
        "The connections of clients, a page at a time.",
        ConnectionList,
        optional=(
            CLIENT_ID,
            _text("host", "Only connections from this host."),
            _text(
                "broker",
                "Only connections to this broker, or to `bootstrap`.",
                pattern="^([0-9]+|bootstrap)$",
            ),
            AFTER_ID,
            _limit(PAGE_ROWS_MAX),
        ),
    ),
    Operation(
        "GET",
        "/v1/limits",
        "The limits of clients, and what they have used, a page at a time.",
        LimitList,
        optional=(AFTER_ID, _limit(PAGE_ROWS_MAX)),
        whole=True,
    ),
    Operation(
        "GET",
        "/v1/parked",
        "Records that wait for an operator.",
        ParkedList,
        query=(GROUP,),
        optional=(TOPIC, PARTITION, REASON, KEY_GLOB, HEADERS, AFTER_RECORD, _limit(PAGE_ROWS_MAX)),
    ),
    Operation(
        "GET",
        "/v1/parked/value",
        "The value of one parked record, for tokens with `values`.",
        ValueRow,
        query=(
            GROUP,
            _text("topic", "The topic of the record.", minLength=1, maxLength=GROUP_ID_CHARS_MAX),
            _whole("partition", "Its partition.", 0, 2**31 - 1),
            _whole("offset", "Its offset.", 0, 2**63 - 1),
        ),
        action="parked.value",
        values=True,
    ),
    Operation(
        "POST",
        "/v1/parked/release",
        "Deliver parked records once more, skip them, or write them to the dead letters.",
        Released,
        body=ReleaseBody,
        role=Role.OPERATOR,
        action="parked.release",
    ),
    Operation(
        "GET",
        "/v1/unreadable",
        "Where a group cannot read on.",
        UnreadableList,
        query=(GROUP,),
        optional=(TOPIC, AFTER_PLACE, _limit(PAGE_ROWS_MAX)),
    ),
    Operation(
        "POST",
        "/v1/unreadable/skip",
        "Give a batch up that is too large when decompressed.",
        Skipped,
        body=SkipBody,
        role=Role.OPERATOR,
        action="unreadable.skip",
    ),
    Operation(
        "GET",
        "/v1/settings",
        "The settings of a group, and where each comes from.",
        SettingsRow,
        query=(GROUP,),
    ),
    Operation(
        "PUT",
        "/v1/settings",
        "Change settings that Kafka has a group config for.",
        SettingsRow,
        body=SettingsBody,
        query=(GROUP,),
        role=Role.OPERATOR,
        action="settings.set",
    ),
    Operation(
        "DELETE",
        "/v1/groups/{group}",
        "Delete a group without members: its positions, parked records and key filters.",
        DeletedGroup,
        role=Role.ADMIN,
        action="group.delete",
    ),
    Operation("GET", "/v1/filters", "The key filters of a group.", KeyFilterRules, query=(GROUP,)),
    Operation(
        "PUT",
        "/v1/filters",
        "Replace the key filters of a group.",
        KeyFilterRules,
        body=FilterRules,
        query=(GROUP,),
        role=Role.OPERATOR,
        action="filters.set",
    ),
    Operation(
        "DELETE",
        "/v1/filters",
        "Go back to the key filters of keyway.yaml.",
        KeyFilterRules,
        query=(GROUP,),
        role=Role.OPERATOR,
        action="filters.remove",
    ),
    Operation(
        "GET",
        "/v1/config",
        "The configuration that runs, and its differences from the file.",
        ConfigRow,
        whole=True,
    ),
    Operation(
        "POST",
        "/v1/config/reload",
        "Take over the parts of the file that need no restart: tokens, settings of groups.",
        ReloadRow,
        role=Role.ADMIN,
        action="config.reload",
        whole=True,
    ),
    Operation(
        "POST",
        "/v1/tls/reload",
        "Read the certificates of all ports with TLS again. Unusable files change nothing.",
        TlsReloadRow,
        role=Role.OPERATOR,
        action="tls.reload",
        whole=True,
    ),
    Operation(
        "GET",
        "/v1/clusters",
        "The clusters that records, offsets and schemas are distributed between, as a tree.",
        ClustersRow,
        whole=True,
    ),
    Operation(
        "GET",
        "/v1/links",
        "The links of the distribution: how far each is, and why it waits.",
        StatusRow,
        optional=(
            _text("link", "Only this link, like `ams-level-1`."),
            _text("topic", "Only this topic of each link."),
        ),
        whole=True,
    ),
    Operation(
        "GET",
        "/v1/offsets",
        "Where groups would go on on each cluster, and why not. With a parameter a page at a time.",
        StatusRow,
        optional=(
            _text("group", "Only this group."),
            TOPIC,
            _text("cluster", "Only this cluster."),
            AFTER_OFFSET,
            _limit(PAGE_ROWS_MAX),
        ),
        whole=True,
    ),
    Operation(
        "GET",
        "/v1/schemas",
        "The schemas of each target registry.",
        StatusRow,
        optional=(_text("target", "Only this cluster's registry; `ok` is still that of all."),),
        whole=True,
    ),
    Operation(
        "GET",
        "/v1/audit",
        "The last changes and refusals, the latest first, a page at a time.",
        AuditList,
        optional=(
            _text("who", "Only acts with this token."),
            _text("group", "Only acts on this group."),
            _text("action", "Only acts of this kind."),
            AFTER_ID,
            _limit(PAGE_ROWS_MAX),
        ),
        role=Role.ADMIN,
        whole=True,
    ),
    Operation("GET", "/v1/login", "The caller: name, role, groups.", CallerRow),
    Operation(
        "POST",
        "/v1/login",
        "Open a browser's session with a token; a cookie names the session.",
        CallerRow,
        body=LoginBody,
        role=None,
        action="login",
    ),
    Operation("POST", "/v1/logout", "End it.", LoggedOut, role=None, action="logout"),
    Operation("GET", DESCRIPTION, "This description.", None, role=None, media=JSON),
    Operation(
        "POST",
        "/v1/filters/preview",
        "The effect of other key filters on the members and keys of a group. Changes nothing.",
        FilterPreview,
        body=FilterChange,
        query=(GROUP,),
    ),
    Operation("GET", "/v1/overview", "The node at a glance: health, traffic, groups.", Overview),
    Operation(
        "GET",
        "/v1/events",
        "The overview every two seconds, as server-sent events.",
        None,
        media=EVENTS,
    ),
    Operation("GET", "/metrics", "Metrics for Prometheus.", None, whole=True, media=METRICS_TEXT),
    Operation("GET", "/health", "503 with the reasons if anything is amiss.", HealthRow, also=503),
    Operation(
        "GET",
        "/health/ready",
        "503 if the node cannot serve clients.",
        HealthRow,
        also=503,
        role=None,
    ),
    Operation("GET", "/health/live", "The process answers.", Alive, role=None),
)
