"""Key filters of members: rules set over REST, rules of keyway.yaml, filters in a client.id.

The first rule whose glob matches the client's name decides. Rules set over REST replace those of
keyway.yaml for that group; Redis keeps them beside the saved members. Without a matching rule the
client's own declaration counts (gateway/core/share/declared_filters.py). A member without any
filter takes every key.

Each change has a version, which Redis keeps for removed rules, too. A Redis that comes back with an
older file shows a lower one than this node knows, or none: then the rules are written again. Of
removed rules the latest REMOVED_FILTERS_MAX versions are kept, and the last that was forgotten, so
that other nodes forget them, too, and do not take Redis for an older one.
"""

from __future__ import annotations

import asyncio
import fnmatch
import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import structlog
from pydantic import ValidationError
from redis.asyncio import Redis

from gateway.config.file import Config
from gateway.config.groups import STORED, FilterRule, FilterRules
from gateway.core.share.declared_filters import InvalidKeyFilters, client_name, inline_filters
from gateway.members.change_log import ChangeLog
from gateway.members.limits import (
    FILTER_GLOB_BYTES,
    FILTER_RULE_BYTES,
    FILTER_SETS_BYTES_MAX,
    FILTERS_LOOK_S,
    FILTERS_MEMBER_BYTES,
    FILTERS_REMEMBERED_BYTES,
    MEMBERSHIP_RETRY_MS,
    REMOVED_FILTERS_MAX,
)
from gateway.members.redis_table import RedisTable, TableUnavailable
from keyway.clusters.yaml_file import first_fault

log = structlog.get_logger("keyway.groups")

_KEY = "keyway:filters"
_VERSIONS_KEY = "keyway:filter_versions"
_FORGOTTEN = ""  # no group's name: up to this version removed rules are forgotten


class InvalidRules(ValueError):
    """The text names the fault."""


class TooManyRules(Exception):
    """The rules of all groups together take more memory than they may."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one group. `source`: "rest" or "config"."""

    rules: tuple[FilterRule, ...]
    source: Literal["config", "rest"]


class _Set(NamedTuple):
    """The rules of one group set over REST."""

    rules: tuple[FilterRule, ...]
    bytes: int  # of memory, roughly


class _Known(NamedTuple):
    """What rules gave to a member: a join asks for all members."""

    rules: tuple[FilterRule, ...]
    filters: tuple[bytes, ...]
    bytes: int  # of memory, roughly


class KeyFilters:
    def __init__(self, config: Config, redis: Redis, now_ms: Callable[[], int]) -> None:
        self.trouble = ""  # why the rules cannot be read; groups stand until they are known
        self._config = config
        self._now_ms = now_ms
        self._table = RedisTable(redis, _KEY, rule_rows, _stored_rules)
        self._version_table: RedisTable[int] = RedisTable(redis, _VERSIONS_KEY, int, int)
        self._versions: dict[str, int] = {}  # by group
        self._log = ChangeLog(redis)
        self._set: dict[str, _Set] = {}
        # One change at a time is stored and then in memory; each counts those before it.
        self._changing = asyncio.Lock()
        # By group and client.id, the oldest first.
        self._known: OrderedDict[tuple[str, str], _Known] = OrderedDict()
        self._known_bytes = 0
        self._loaded = False
        self._on_loaded: list[Callable[[], None]] = []

    def on_loaded(self, callback: Callable[[], None]) -> None:
        self._on_loaded.append(callback)

    def loaded(self) -> bool:
        """True once the rules set before are known. No record may be delivered until then: a member
        could get keys that an operator took from it.
        """
        return self._loaded

    def of(self, group: str, client_id: str) -> tuple[bytes, ...]:
        """The globs of a member; () = every key."""
        rules = self.rules(group).rules
        known = self._known.get((group, client_id))
        if known is None or known.rules is not rules:
            filters = self.of_rules(rules, group, client_id)
            globs = sum(FILTER_GLOB_BYTES + len(glob) for glob in filters)
            known = _Known(rules, filters, FILTERS_MEMBER_BYTES + len(client_id) + globs)
            self._remember(group, client_id, known)
        return known.filters

    def _remember(self, group: str, client_id: str, known: _Known) -> None:
        before = self._known.pop((group, client_id), None)
        self._known[group, client_id] = known
        self._known_bytes += known.bytes - (0 if before is None else before.bytes)
        while self._known_bytes > FILTERS_REMEMBERED_BYTES:
            self._known_bytes -= self._known.popitem(last=False)[1].bytes

    def of_rules(
        self, rules: Iterable[FilterRule], group: str, client_id: str
    ) -> tuple[bytes, ...]:
        """The same, if the group had these rules."""
        name = client_name(client_id)
        for rule in rules:
            if fnmatch.fnmatchcase(name, rule.client_id):
                return tuple(glob.encode() for glob in rule.keys)
        try:
            return inline_filters(client_id)
        except InvalidKeyFilters as invalid:
            # A join was refused for this; only a membership of an older version can still have it.
            log.warning("key_filters_ignored", group=group, client_id=client_id, why=str(invalid))
            return ()

    def reload(self, config: Config) -> None:
        """Another keyway.yaml counts from now on. The caller tells the groups whose rules differ
        (`Groups.filters_changed`).
        """
        self._config = config

    def rules(self, group: str) -> Rules:
        found = self._set.get(group)
        if found is not None:
            return Rules(found.rules, "rest")
        return Rules(self.configured(group), "config")

    def configured(self, group: str) -> tuple[FilterRule, ...]:
        """The rules of keyway.yaml."""
        return self._config.group(group).filters

    async def load(self) -> None:
        """Reads the rules that were set before. Raises TableUnavailable."""
        async with self._changing:
            await self._read()
        self._loaded = True
        for callback in self._on_loaded:
            callback()

    async def _read(self) -> None:
        """All rules and their versions, unless this node knows better; that is written again."""
        try:
            versions = await self._version_table.load()
            stored = await self._table.load()
        except TableUnavailable as error:
            self._note_trouble(str(error))
            raise
        self._note_trouble("")
        found = {group: _Set(rules, held_bytes(rules)) for group, rules in stored.items()}
        newer = self._newer_than(versions)
        for group in newer:
            versions[group] = self._versions[group]
            found.pop(group, None)
            if group in self._set:
                found[group] = self._set[group]
        self._set, self._versions = found, versions
        if newer:
            log.warning("key_filters_written_again", groups=len(newer), first=min(newer))
            await self._write(newer)

    def _newer_than(self, versions: Mapping[str, int]) -> list[str]:
        """Groups that Redis, which has these versions, knows less of than this node."""
        forgotten = versions.get(_FORGOTTEN, 0)
        return [
            name
            for name, own in self._versions.items()
            if own > versions.get(name, forgotten) and name != _FORGOTTEN
        ]

    async def _write(self, groups: Iterable[str]) -> None:
        """What memory has of these groups. Raises TableUnavailable."""
        names = list(groups)
        await self._version_table.write({name: self._versions[name] for name in names})
        kept = {name: self._set[name].rules for name in names if name in self._set}
        await self._table.write(kept, [name for name in names if name not in kept])
        await self._log.tell_filters()

    def _note_trouble(self, why: str) -> None:
        if why and not self.trouble:
            log.warning("key_filters_not_read", reason=why)
        elif self.trouble and not why:
            log.info("key_filters_read_again")
        self.trouble = why

    async def watch_forever(self, changed: Callable[[str], None]) -> None:
        """Looks now and then whether Redis has gone back to older rules. `changed`: as for
        `reread`.
        """
        while True:
            await asyncio.sleep(FILTERS_LOOK_S)
            try:
                await self.look(changed)
            except TableUnavailable:
                continue  # it only has to come back

    async def look(self, changed: Callable[[str], None]) -> None:
        """Raises TableUnavailable."""
        if self._loaded:
            stored = await self._version_table.load()
            if self._newer_than(stored):
                await self.reread(changed)

    async def reread(self, changed: Callable[[str], None]) -> None:
        """Rules that another node has set; `changed` is told of each group whose rules differ.
        Raises TableUnavailable.
        """
        async with self._changing:
            before = self._set
            await self._read()
        for group in sorted({*before, *self._set}):
            if before.get(group) != self._set.get(group):
                changed(group)

    async def load_until_loaded(self) -> None:
        """Tries `load` until Redis answers."""
        while not self._loaded:
            try:
                await self.load()
            except TableUnavailable:
                await asyncio.sleep(MEMBERSHIP_RETRY_MS / 1000)

    async def put(self, group: str, rules: tuple[FilterRule, ...]) -> None:
        """Raises TooManyRules, TableUnavailable. The caller tells the group
        (`Groups.filters_changed`).
        """
        new = _Set(rules, held_bytes(rules))
        async with self._changing:
            others = (rules.bytes for name, rules in self._set.items() if name != group)
            wanted = sum(others) + new.bytes
            if wanted > FILTER_SETS_BYTES_MAX:
                raise TooManyRules(
                    f"the key filters of all groups would take {wanted} bytes of memory:"
                    f" at most {FILTER_SETS_BYTES_MAX}; remove the filters that no group needs"
                )
            version = self._next_version(group)
            await self._version_table.write({group: version})
            await self._table.write({group: rules})
            await self._log.tell_filters()
            self._set[group], self._versions[group] = new, version

    async def remove(self, group: str) -> None:
        """Back to the rules of keyway.yaml. Raises TableUnavailable."""
        async with self._changing:
            version = self._next_version(group)
            removed = sorted(
                self._versions.keys() - self._set.keys() - {_FORGOTTEN},
                key=self._versions.__getitem__,
            )
            surplus = removed[: max(0, len(removed) - REMOVED_FILTERS_MAX)]
            versions = {group: version}
            if surplus:
                versions[_FORGOTTEN] = self._versions[surplus[-1]]
            await self._version_table.write(versions, surplus)
            await self._table.write({}, [group])
            await self._log.tell_filters()
            self._set.pop(group, None)
            self._versions |= versions
            for name in surplus:
                del self._versions[name]

    def _next_version(self, group: str) -> int:
        before = max(self._versions.get(name, 0) for name in (group, _FORGOTTEN))
        return max(self._now_ms(), before + 1)


def held_bytes(rules: Iterable[FilterRule]) -> int:
    """The memory that the rules of a group take, roughly; no rules at all take some, too."""
    texts = [
        FILTER_RULE_BYTES + FILTER_GLOB_BYTES * len(rule.keys) + rule.text_bytes for rule in rules
    ]
    return FILTER_RULE_BYTES + sum(texts)


def digest(rules: Iterable[FilterRule]) -> str:
    """Eight hex digits that tell one set of rules from another, for the log."""
    return hashlib.sha256(json.dumps(rule_rows(rules)).encode()).hexdigest()[:8]


def rule_rows(rules: Iterable[FilterRule]) -> list[dict[str, Any]]:
    return [{"client_id": rule.client_id, "keys": list(rule.keys)} for rule in rules]


def _stored_rules(rows: object) -> tuple[FilterRule, ...]:
    """Never left out for their cost: the members would get keys that were taken from them."""
    return parse_rules(rows, context=STORED)


def parse_rules(rows: object, *, context: str | None = None) -> tuple[FilterRule, ...]:
    """[{"client_id": glob, "keys": [glob, ...]}, ...]. Raises InvalidRules."""
    try:
        return FilterRules.model_validate({"rules": rows}, context=context).rules
    except ValidationError as error:
        raise InvalidRules(first_fault(error)) from error
