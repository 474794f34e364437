"""Key filters of members: rules set over REST, rules of keyway.yaml, filters in a client.id.

The first rule whose glob matches the client's name decides. Rules set over REST replace those of
keyway.yaml for that group; Redis keeps them beside the saved members. Without a matching rule the
client's own declaration counts (gateway/core/share/declared_filters.py). A member without any
filter takes every key.
"""

from __future__ import annotations

import asyncio
import fnmatch
import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import structlog
from pydantic import ValidationError
from redis.asyncio import Redis

from gateway.config.file import Config
from gateway.config.groups import FilterRule, FilterRules
from gateway.core.share.declared_filters import InvalidKeyFilters, client_name, inline_filters
from gateway.members.change_log import ChangeLog
from gateway.members.limits import (
    FILTER_GLOB_BYTES,
    FILTER_RULE_BYTES,
    FILTER_SETS_BYTES_MAX,
    MEMBERSHIP_RETRY_MS,
)
from gateway.members.redis_table import RedisTable, TableUnavailable
from keyway.clusters.yaml_file import first_fault

log = structlog.get_logger("keyway.groups")

_KEY = "keyway:filters"


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


class KeyFilters:
    def __init__(self, config: Config, redis: Redis) -> None:
        self._config = config
        self._table = RedisTable(redis, _KEY, rule_rows, parse_rules)
        self._log = ChangeLog(redis)
        self._set: dict[str, _Set] = {}
        # One change at a time is stored and then in memory; each counts those before it.
        self._changing = asyncio.Lock()
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
        return self.of_rules(self.rules(group).rules, group, client_id)

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
            stored = await self._table.load()
            self._set.update(
                (group, _Set(rules, held_bytes(rules))) for group, rules in stored.items()
            )
        self._loaded = True
        for callback in self._on_loaded:
            callback()

    async def reread(self, changed: Callable[[str], None]) -> None:
        """Rules that another node has set; `changed` is told of each group whose rules differ.
        Raises TableUnavailable.
        """
        async with self._changing:
            stored = await self._table.load()
            before, self._set = (
                self._set,
                {group: _Set(rules, held_bytes(rules)) for group, rules in stored.items()},
            )
        for group in sorted({*before, *self._set}):
            if before.get(group) != self._set.get(group):
                changed(group)

    async def load_until_loaded(self) -> None:
        """Tries `load` until Redis answers."""
        while not self._loaded:
            try:
                await self.load()
            except TableUnavailable:
                # The window store logs that Redis is away; here it only has to come back.
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
            await self._table.write({group: rules})
            await self._log.tell_filters()
            self._set[group] = new

    async def remove(self, group: str) -> None:
        """Back to the rules of keyway.yaml. Raises TableUnavailable."""
        async with self._changing:
            await self._table.write({}, [group])
            await self._log.tell_filters()
            self._set.pop(group, None)


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


def parse_rules(rows: object) -> tuple[FilterRule, ...]:
    """[{"client_id": glob, "keys": [glob, ...]}, ...]. Raises InvalidRules."""
    try:
        return FilterRules.model_validate({"rules": rows}).rules
    except ValidationError as error:
        raise InvalidRules(first_fault(error)) from error
