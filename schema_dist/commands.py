"""The commands of `keyway schemas` without the command line: an answer for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, astuple, dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from keyway.clusters.config import ClustersConfig, ConfigError
from keyway.kafka.asking import Asking, Away
from keyway.service import wall_ms
from schema_dist import service
from schema_dist.core.desired import desired
from schema_dist.core.differences import differences
from schema_dist.core.model import Register, SchemaVersion, SetCompatibility, SetMode, Write
from schema_dist.errors import AwayError, RefusedError
from schema_dist.limits import LISTED_MAX, SILENT_MS
from schema_dist.parts import (
    allowed,
    confirming_of,
    followed,
    lookups,
    names_between,
    primary_of,
    reader_of,
    source_of,
    target_of,
    targets_of,
)
from schema_dist.state_topic import StateTopic
from schema_dist.status import refusal_row
from schema_dist.target_sync import TargetSync

Rows = list[tuple[object, ...]]
Shown = tuple[str, Sequence[str], Rows]  # a table: title, columns, rows
OnStep = Callable[[str], None]  # hears of each step of a command
_REFUSED = ("SUBJECT", "VERSION", "ID", "REASON", "DETAIL")


@dataclass(frozen=True, slots=True)
class Answer:
    """`ok`: nothing is refused, behind or different. `fields`: the JSON; `tables`: for people;
    `away`: clusters that did not answer, and why.
    """

    ok: bool
    fields: dict[str, Any] = field(default_factory=dict)
    tables: list[Shown] = field(default_factory=list)
    away: tuple[str, ...] = ()

    @property
    def raw(self) -> dict[str, Any]:
        return {"ok": self.ok, **self.fields}

    @property
    def code(self) -> int:
        """Exit code of the command."""
        return 3 if self.away else int(not self.ok)


async def run(config: ClustersConfig) -> None:
    """As `service.run`."""
    await service.run(config)


async def view(config: ClustersConfig, cluster: str, beats: int | None) -> None:
    """As `view.serve.serve`."""
    from schema_dist.view.serve import serve  # a web server, which the other commands start without

    await serve(config, config.cluster(cluster), beats)


async def decode(config: ClustersConfig, cluster: str, topic: str, value: bytes) -> dict[str, Any]:
    """The value as JSON has it, by the schema that it names; or the `problem`, in a line. The
    cluster's registry is asked, or else its registry view.
    """
    from schema_dist.decoding import (  # libraries that the other commands start without
        HEADER_BYTES,
        Undecodable,
        document_of,
        schema_id_of,
        schema_of,
    )

    try:
        schema_id = schema_id_of(value)
    except Undecodable as error:
        return {"problem": str(error)}
    try:
        async with lookups(config, config.cluster(cluster)) as registry:
            schema = await schema_of(registry, schema_id, topic)
        document = document_of(schema, value[HEADER_BYTES:])
    except (Undecodable, AwayError, RefusedError) as error:
        return {"problem": f"schema {schema_id}: {error}", "schema_id": schema_id}
    return {"format": schema.kind.lower(), "schema_id": schema_id, "document": document}


async def check(config: ClustersConfig, *, probe: bool, told: OnStep) -> Answer:
    """A dry run for every target. With `probe`, explicit ids are tried in a subject that is removed
    again. Raises ConfigError, PatternError, AwayError, LogError, RefusedError.
    """
    primary = primary_of(config)
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(source_of(primary))
        # All pairs of patterns are compiled before anything is asked.
        targets = [
            await stack.enter_async_context(target_of(config, cluster))
            for cluster in targets_of(config)
        ]
        may = allowed(config, await stack.enter_async_context(confirming_of(primary)))
        told(f"reading the registry of {primary.name}")
        contents = await source.read()
        found: list[dict[str, Any]] = []
        tables: list[Shown] = []
        for parts in targets:
            sync = TargetSync(parts.target, parts.state, parts.names, parts.follows, may)
            told(f"reading the registry of {parts.name}")
            plan = await sync.plan(contents)
            told(f"trying explicit ids on {parts.name}")
            problem = await sync.probe(plan) if probe else None
            rows = [_write_row(write) for wave in plan.waves for write in wave]
            rows += [
                {"write": "SoftDelete", **_place(version), "once": "its absence is confirmed"}
                for version in plan.unconfirmed
            ]
            refused = [refusal_row(refusal) for refusal in plan.refusals]
            found.append(
                {
                    "target": parts.name,
                    "probe": problem or ("explicit ids count" if probe and rows else "not tried"),
                    "probe_ok": problem is None,
                    "in_sync": plan.in_sync,
                    "writes": rows[:LISTED_MAX],
                    "writes_count": len(rows),
                    "refusals": refused[:LISTED_MAX],
                    "refusals_count": len(refused),
                }
            )
            tables += _check_tables(found[-1])
        bad = dict(contents.malformed)
    if bad:
        listed: Rows = list(bad.items())
        tables.append((f"{primary.name}: records that are skipped", ("WHY", "COUNT"), listed))
    ok = not bad and all(target["probe_ok"] and not target["refusals"] for target in found)
    return Answer(ok, {"source": primary.name, "skipped": bad, "targets": found}, tables)


def _write_row(write: Write) -> dict[str, Any]:
    kind = type(write).__name__
    if isinstance(write, SetCompatibility):
        return {"write": kind, "subject": write.subject, "to": write.level}
    if isinstance(write, SetMode):
        return {"write": kind, "subject": write.subject, "to": write.mode}
    made = {"write": kind, **_place(write.wanted)}
    return made | ({"id": write.wanted.id} if isinstance(write, Register) else {})


def _place(version: SchemaVersion) -> dict[str, Any]:
    return {"subject": version.subject, "version": version.version}


def _check_tables(found: dict[str, Any]) -> list[Shown]:
    name = found["target"]
    summary: Rows = [
        (found["in_sync"], found["writes_count"], found["refusals_count"], found["probe"])
    ]
    writes: Rows = [
        (
            write["write"],
            write["subject"],
            write.get("version"),
            write.get("id"),
            write.get("to") or write.get("once"),
        )
        for write in found["writes"]
    ]
    tables: list[Shown] = [(name, ("IN-SYNC", "WRITES", "REFUSED", "PROBE"), summary)]
    if writes:
        columns = ("WRITE", "SUBJECT", "VERSION", "ID", "TO")
        tables.append((f"{name}: would be written", columns, writes))
    if found["refusals"]:
        tables.append((f"{name}: refused", _REFUSED, _refusal_rows(found["refusals"])))
    return tables


def _refusal_rows(refusals: list[dict[str, Any]]) -> Rows:
    columns = ("subject", "version", "id", "reason", "detail")
    return [tuple(refusal[column] for column in columns) for refusal in refusals]


class Targets:
    """The last report of the running process about each target, or one. Raises ConfigError."""

    def __init__(self, config: ClustersConfig, target: str | None = None) -> None:
        topic = config.schemas.state_topic
        asked = [cluster for cluster in targets_of(config) if target in (None, cluster.name)]
        if not asked and target is not None:
            raise ConfigError(f"{config.cluster(target).name} is the primary, and no target")
        self._asking = Asking(
            {
                cluster.name: partial(
                    _reported, cluster.name, StateTopic(cluster.client_settings(), topic)
                )
                for cluster in asked
            }
        )

    def look(self, *, within_s: float | None = None) -> Answer:
        """`within_s`: as in Asking.look."""
        found: list[dict[str, Any]] = []
        away: list[str] = []
        for name, reported in self._asking.look(within_s=within_s).items():
            if isinstance(reported, Away):
                away.append(f"{name}: {reported.reason}")
                found.append({"target": name, "problem": reported.reason})
            else:
                found.append(reported)
        return _status(found, away)


def _reported(name: str, state: StateTopic) -> dict[str, Any] | Away:
    try:
        report = state.status() or {"target": name}
    except AwayError as error:
        return Away(str(error))
    at_ms = report.get("at_ms")
    if not isinstance(at_ms, int) or wall_ms() - at_ms <= SILENT_MS:
        return report
    silent = f"not heard of since {_when(at_ms)}"
    before = report.get("problem")
    return report | {"problem": f"{silent}; before: {before}" if before else silent}


def _status(found: list[dict[str, Any]], away: list[str]) -> Answer:
    summary: Rows = [
        (
            report["target"],
            report.get("in_sync"),
            report.get("behind"),
            sum(report.get("refused", {}).values()),
            _when(report.get("last_write_ms")),
            _when(report.get("at_ms")),
            report.get("problem"),
        )
        for report in found
    ]
    columns = ("TARGET", "IN-SYNC", "BEHIND", "REFUSED", "LAST-WRITE", "REPORTED", "PROBLEM")
    tables: list[Shown] = [("", columns, summary)]
    for report in found:
        if report.get("refusals"):
            rows = _refusal_rows(report["refusals"])
            tables.append((f"{report['target']}: refused", _REFUSED, rows))
    ok = all(
        report.get("behind") == 0 and not report.get("refused") and not report.get("problem")
        for report in found
    )
    return Answer(ok, {"targets": found}, tables, tuple(away))


def _when(at_ms: int | None) -> str | None:
    if at_ms is None:
        return None
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")


async def diff(config: ClustersConfig, first: str, second: str, *, told: OnStep) -> Answer:
    """Raises ConfigError, PatternError, AwayError, LogError, RefusedError."""
    one, other = config.cluster(first), config.cluster(second)
    names = names_between(config, one, other)
    async with reader_of(config, one) as reader, reader_of(config, other) as there:
        told(f"reading the registry of {first}")
        wanted = desired(await reader.read(), names, followed(config, one))
        told(f"reading the registry of {second}")
        found = differences(wanted, await there.read())
    rows: Rows = [astuple(difference) for difference in found]
    fields = {
        "first": first,
        "second": second,
        "differences": [asdict(difference) for difference in found],
    }
    title = f"{first} and {second}: {len(rows)} differences"
    return Answer(not found, fields, [(title, ("SUBJECT", "VERSION", "ID", "WHAT"), rows)])
