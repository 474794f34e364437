"""Parameters of REST that several routes have (the table of routes is in api.py)."""

from __future__ import annotations

from dispatcher.core.model import Reason
from gateway.admin.limits import ID_MAX, KEY_BYTES_MAX, PAGE_HEADERS_MAX, PAGE_ROWS_MAX
from gateway.admin.operation import Parameter


def text(name: str, about: str, **schema: str | int | list[str]) -> Parameter:
    return Parameter(name, about, {"type": "string", **schema})


def whole(name: str, about: str, least: int, most: int) -> Parameter:
    return Parameter(name, about, {"type": "integer", "minimum": least, "maximum": most})


def rows(most: int) -> Parameter:
    return whole("limit", "Rows of the page.", 1, most)


AFTER_NAME = text("after", "The last name of the page before: its `next`.")
AFTER_ID = whole("after", "The last id of the page before: its `next`.", 0, ID_MAX)
AFTER_BROKER = whole("after", "The last broker of the page before: its `next`.", 0, 2**31 - 1)
AFTER_PLACE = text(
    "after", "The `next` of the page before, like `orders-3`.", pattern=r"^[^\n]+-[0-9]{1,10}$"
)
AFTER_RECORD = text(
    "after",
    "The `next` of the page before, like `orders-3-17`.",
    pattern=r"^[^\n]+-[0-9]{1,10}-[0-9]{1,19}$",
)
AFTER_OFFSET = text("after", "The `next` of the page before.", pattern="^[A-Za-z0-9_-]+$")
NAME = text("name", "Only names that hold this text.")
TOPIC = text("topic", "Only this topic.")
PARTITION = whole("partition", "Only this partition.", 0, 2**31 - 1)
REASON = text(
    "reason",
    "Only records that were parked for this reason.",
    enum=[reason.value for reason in Reason],
)
KEY_GLOB = text(
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
REACHED = Parameter(
    "reached", "Only accounts that have reached one of their limits.", {"type": "boolean"}
)
CLIENT_ID = text("client_id", "Only client ids that hold this text.")
NAMES_PAGE = (NAME, AFTER_NAME, rows(PAGE_ROWS_MAX))
PLACES_PAGE = (
    TOPIC,
    PARTITION,
    text("state", "Only partitions in this state.", enum=["idle", "loading", "up"]),
    AFTER_PLACE,
)
