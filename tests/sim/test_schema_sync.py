"""Schema distribution to a registry, killed at every step: the end is always the same.

A step is a request to the registry before it is carried out, its answer before it is seen, a record
of the target's log before it is written or seen, or an entry of the ledger before it is written.
The history has references, another id for the same subject, soft and hard deletes, deletes of a
referred schema, compatibility and modes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from keyway.clusters.core.names import compile_pattern
from keyway.clusters.core.subjects import RecordNames, pair_subjects
from schema_dist.confirming import Confirming
from schema_dist.core.contents import Contents
from schema_dist.core.ledger import Entry
from schema_dist.core.model import (
    JSON,
    PROTOBUF,
    Reference,
    Refusal,
    Schema,
    SchemaId,
    SchemaVersion,
    Version,
    Write,
)
from schema_dist.core.records import (
    CompatibilitySet,
    Event,
    ModeSet,
    SchemaRemoved,
    SchemaWritten,
    SubjectDeleted,
    decode,
)
from schema_dist.errors import AwayError
from schema_dist.log_writer import record_of
from schema_dist.rest_writer import RestTarget
from schema_dist.target_sync import Allowed, Round, TargetSync
from tests.rig.schema_registry.app import App
from tests.rig.schema_registry.in_process import MemoryLedger, client_of

NAMES = pair_subjects(
    compile_pattern("acme-{topic}"), compile_pattern("{topic}.b"), RecordNames.KEEP
)


MAY = Allowed(Confirming(None), hard_deletes=True)


def avro(name: str, *fields: str) -> Schema:
    listed = [{"name": field, "type": "string", "default": ""} for field in fields]
    return Schema("AVRO", json.dumps({"type": "record", "name": name, "fields": listed}))


def written(subject: str, version: int, number: int, schema: Schema) -> SchemaWritten:
    return SchemaWritten(
        SchemaVersion(subject=subject, version=Version(version), id=SchemaId(number), schema=schema)
    )


def deleted(event: SchemaWritten) -> SchemaWritten:
    return SchemaWritten(replace(event.written, deleted=True))


CUSTOMER = written("acme-customer-value", 1, 11, avro("Customer", "name"))
ORDER_TEXT = '{"type":"record","name":"Order","fields":[{"name":"c","type":"Customer"}]}'
ORDER = written(
    "acme-orders-value",
    1,
    12,
    Schema("AVRO", ORDER_TEXT, (Reference("Customer", "acme-customer-value", Version(1)),)),
)
PROTO = written("acme-p-value", 3, 20, Schema(PROTOBUF, 'syntax = "proto3"; message P {}'))
JSON_SCHEMA = written("com.acme.Any", 1, 21, Schema(JSON, '{"type": "object"}'))
SECOND = written("acme-two-value", 1, 11, avro("Customer", "name"))
V2 = written("acme-customer-value", 2, 13, avro("Customer", "name", "town"))

FIRST: list[Event] = [
    # The user of a reference comes first, as after compaction.
    ORDER, CUSTOMER, PROTO, JSON_SCHEMA, SECOND,
    CompatibilitySet("acme-orders-value", "FULL"),
    CompatibilitySet("", "NONE"),
    ModeSet("acme-p-value", "READONLY"),
]  # fmt: skip
THEN: list[Event] = [
    V2,
    deleted(ORDER),
    deleted(CUSTOMER),  # referred to until ORDER was deleted
    SubjectDeleted("acme-p-value", Version(3)),  # of a read-only subject
    CompatibilitySet("acme-orders-value", None),
    ModeSet("acme-p-value", None),
    deleted(SECOND),
    SchemaRemoved("acme-two-value", Version(1)),
]
LAST: list[Event] = [
    SchemaRemoved("acme-orders-value", Version(1)),
    SchemaRemoved("acme-customer-value", Version(1)),
    # Another schema in the place and under the id of an earlier one.
    SchemaRemoved("acme-p-value", Version(3)),
    written("acme-p-value", 3, 12, Schema(PROTOBUF, 'syntax = "proto3"; message New {}')),
]


class Killed(Exception):
    """The process ends here."""


class Log:
    """The target's `_schemas` as its writer sees it: `records` outlive the process."""

    def __init__(self, records: list[tuple[bytes, bytes | None]], step: Callable[[], None]) -> None:
        self._records = records
        self._step = step
        self.contexts = False
        self.contents = Contents()

    async def read(self, settings_of: Iterable[str]) -> Contents:
        del settings_of
        self.contents = Contents()
        for at, record in enumerate(self._records):
            self.contents.apply(decode(*record), at)
        return self.contents

    def switched_by(self, batch: Sequence[Write]) -> list[str]:
        del batch
        return []

    async def apply(self, batch: Sequence[Write]) -> list[Refusal | None]:
        for write in batch:
            self._step()
            self._records.append(record_of(write, self.contents.more))
            self._step()
        await self.read([])
        return [None for _ in batch]

    async def probe(self, sample: SchemaVersion) -> str | None:
        del sample
        return None

    async def clean_up_probe(self) -> None:
        """Nothing is tried on a log without a registry."""


class World:
    """The parts that outlive the process: registry or log, and ledger. `steps` counts until the
    kill.
    """

    def __init__(self, *, by_log: bool = False) -> None:
        self.by_log = by_log
        self.app = App()
        self.log: list[tuple[bytes, bytes | None]] = []
        self.ledger = MemoryLedger()
        self.steps = 0
        self.kill_at: int | None = None
        self.app.on_request = self.app.on_answer = lambda _method, _path: self.step()
        self.ledger.on_note = self.step
        self.source = Contents()
        self.begin()

    def copy(self) -> World:
        made = World(by_log=self.by_log)
        made.log = list(self.log)
        made.begin()
        made.app.registry = deepcopy(self.app.registry)
        made.ledger.records = dict(self.ledger.records)
        made.source = deepcopy(self.source)
        return made

    def begin(self) -> None:
        """A new process."""
        target = Log(self.log, self.step) if self.by_log else RestTarget(client_of(self.app))
        self.sync = TargetSync(target, self.ledger, NAMES, lambda _subject: True, MAY)

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.kill_at:
            raise Killed

    def happens(self, events: list[Event]) -> None:
        for event in events:
            self.source.apply(event, len(self.source) + 100)

    async def settle(self) -> Round:
        """Until there is nothing more to do, through kills."""
        for _ in range(5):
            try:
                done = await self.sync.round(self.source)
            except Killed:
                self.begin()
                continue
            if not done.writes:
                return done
        raise AssertionError("it does not come to an end")

    def seen(self) -> dict[str, Any]:
        """All that the registry holds; `modes` as they count."""
        ledger = dict(sorted(self.ledger.records.items()))
        if self.by_log:
            held = asyncio.run(Log(self.log, lambda: None).read([]))
            places = {
                f"{version.subject} {version.version}": version for version in held.versions()
            }
            return {
                "versions": dict(sorted(places.items())),
                "config": dict(sorted(held.compatibility.items())),
                "modes": dict(sorted(held.modes.items())),
                "ledger": ledger,
            }
        registry = self.app.registry
        shown = {
            f"{stored.subject} {stored.version}": (stored.shown(), stored.deleted)
            for stored in registry.all()
        }
        return {
            "versions": dict(sorted(shown.items())),
            "ids": dict(sorted(registry.ids.items())),
            "config": dict(sorted(registry.config.items())),
            "modes": dict(sorted(registry.modes.items())),
            "ledger": ledger,
        }


async def history(*stages: list[Event], world: World | None = None) -> World:
    """The world after the last stage; `steps` are those of that stage."""
    world = World() if world is None else world
    for events in stages:
        world.happens(events)
        world.steps = 0
        done = await world.settle()
        assert not done.refusals
        assert done.behind == 0
    return world


def run(*stages: list[Event], by_log: bool = False) -> World:
    return asyncio.run(history(*stages, world=World(by_log=by_log)))


def test_everything_arrives_under_its_id_and_version() -> None:
    registry = run(FIRST).app.registry
    order = registry.get("orders.b-value", "1", deleted=False)
    assert order.id == 12
    assert order.schema["references"] == [
        {"name": "Customer", "subject": "customer.b-value", "version": 1}
    ]
    assert registry.get("p.b-value", "3", deleted=False).schema["schemaType"] == "PROTOBUF"
    assert registry.get("two.b-value", "1", deleted=False).id == 11
    assert registry.get("com.acme.Any", "1", deleted=False).id == 21
    assert registry.config == {"": "NONE", "orders.b-value": "FULL"}
    assert registry.modes == {"p.b-value": "READONLY"}


def test_deletes_and_settings_follow() -> None:
    registry = run(FIRST, THEN).app.registry
    assert registry.subjects["customer.b-value"][1].deleted
    assert not registry.subjects["customer.b-value"][2].deleted
    assert registry.subjects["orders.b-value"][1].deleted
    assert registry.subjects["p.b-value"][3].deleted
    assert "two.b-value" not in registry.subjects
    assert registry.config == {"": "NONE"}
    assert registry.modes == {}
    registry = run(FIRST, THEN, LAST).app.registry
    assert "orders.b-value" not in registry.subjects
    assert list(registry.subjects["customer.b-value"]) == [2]
    assert registry.subjects["p.b-value"][3].id == 12


def test_a_second_run_writes_nothing() -> None:
    async def twice() -> None:
        world = await history(FIRST, THEN)
        world.begin()
        before = dict(world.app.calls)
        done = await world.sync.round(world.source)
        assert not done.writes
        made = {name: count - before.get(name, 0) for name, count in world.app.calls.items()}
        assert not [name for name, count in made.items() if count and not name.startswith("GET")]

    asyncio.run(twice())


@pytest.mark.parametrize("subjects", [1, 40])
def test_news_alone_is_sent(subjects: int) -> None:
    """As many requests for a new version, however much there is already."""
    names = [f"acme-s{at}-value" for at in range(subjects)]
    held: list[Event] = [written(name, 1, 100 + at, avro("S")) for at, name in enumerate(names)]

    async def later() -> None:
        world = await history(held)
        world.app.calls.clear()
        world.happens([written(names[0], 2, 900, avro("S", "more"))])
        await world.settle()
        assert world.app.calls == {
            "PUT set_mode": 1,
            "POST register": 1,
            "GET version": 1,
            "DELETE delete_mode": 1,
            "GET mode": 1,
        }

    asyncio.run(later())


@pytest.mark.parametrize("by_log", [False, True], ids=["rest", "log"])
@pytest.mark.parametrize("stage", [0, 1, 2])
def test_killed_at_every_step(stage: int, *, by_log: bool) -> None:
    *before, last = (FIRST, THEN, LAST)[: stage + 1]
    start, whole = run(*before, by_log=by_log), run(*before, last, by_log=by_log)
    assert whole.steps > (15 if by_log else 30)
    for at in range(1, whole.steps + 1):
        world = start.copy()
        world.kill_at = at
        asyncio.run(history(last, world=world))
        assert world.seen() == whole.seen(), f"killed at step {at}"


def test_both_ways_of_writing_end_alike() -> None:
    over_rest = run(FIRST, THEN, LAST).app.registry
    held = asyncio.run(Log(run(FIRST, THEN, LAST, by_log=True).log, lambda: None).read([]))
    assert {version.place: (version.id, version.deleted) for version in held.versions()} == {
        (stored.subject, stored.version): (stored.id, stored.deleted) for stored in over_rest.all()
    }
    assert held.compatibility == over_rest.config
    assert held.modes == over_rest.modes


@pytest.mark.parametrize("by_log", [False, True], ids=["rest", "log"])
@pytest.mark.parametrize("stage", [1, 2])
def test_who_may_note_nothing_more_writes_nothing_more(stage: int, *, by_log: bool) -> None:
    """Also of what needs no entry: soft deletes, and settings that are taken back."""
    world = run(*(FIRST, THEN)[:stage], by_log=by_log)
    before = world.seen()
    world.happens((THEN, LAST)[stage - 1])

    def shut_out() -> None:
        raise AwayError("another process has loaded its ledger since")

    world.ledger.on_note = shut_out
    with pytest.raises(AwayError):
        asyncio.run(world.sync.round(world.source))
    assert world.seen() == before


@pytest.mark.parametrize("by_log", [False, True], ids=["rest", "log"])
def test_an_adopted_registry_is_noted_in_parts(
    monkeypatch: pytest.MonkeyPatch, *, by_log: bool
) -> None:
    """All its entries at once would hold the event loop, and the lease with it, for seconds. A kill
    between two parts loses none.
    """
    monkeypatch.setattr("schema_dist.target_sync.NOTED_AT_ONCE", 2)
    names = [f"acme-s{at}-value" for at in range(7)]
    world = run(
        [written(name, 1, 100 + at, avro("S")) for at, name in enumerate(names)], by_log=by_log
    )
    noted = dict(world.ledger.records)
    note, parts = world.ledger.note, list[int]()

    async def counted(entries: Iterable[Entry]) -> None:
        each = list(entries)
        parts.append(len(each))
        if len(parts) == 2:
            raise Killed
        await note(each)

    world.ledger.records.clear()
    monkeypatch.setattr(world.ledger, "note", counted)
    world.begin()
    assert asyncio.run(world.settle()).in_sync == len(names)
    assert world.ledger.records == noted
    assert max(parts) == 2
