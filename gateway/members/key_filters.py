"""Which keys a member takes: rules set at run time, rules of keyway.yaml, what its client.id says.

The first rule whose glob matches the client's name decides. Rules set for a group by REST replace
those of keyway.yaml; they live in Redis beside the memberships. Without a matching rule, what the
client declares itself counts (gateway/core/share/declared_filters.py), else it takes every key.
"""

from __future__ import annotations

import asyncio
import fnmatch
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import structlog
from pydantic import ValidationError
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.config import Config, FilterRule, FilterRules, first_fault
from gateway.core.share.declared_filters import InvalidKeyFilters, client_name, inline_filters
from gateway.members.limits import MEMBERSHIP_RETRY_MS

log = structlog.get_logger("keyway.groups")

_KEY = "keyway:filters"  # hash: group name -> JSON


class InvalidRules(Exception):
    """Rules that are not what they should be; the text says what is wrong."""


class RulesNotSaved(Exception):
    """Redis did not take them; nothing changed."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Of one group. `source`: "rest" or "config"."""

    rules: tuple[FilterRule, ...]
    source: str


class KeyFilters:
    def __init__(self, config: Config, redis: Redis) -> None:
        self._config = config
        self._redis = redis
        self._set: dict[str, tuple[FilterRule, ...]] = {}
        self._loaded = False

    def loaded(self) -> bool:
        """The rules set before are here. Until then nothing must be handed out: a member would get
        keys that an operator took from it.
        """
        return self._loaded

    def of(self, group: str, client_id: str) -> tuple[bytes, ...]:
        """The globs of a member; () = every key."""
        name = client_name(client_id)
        for rule in self.rules(group).rules:
            if fnmatch.fnmatchcase(name, rule.client_id):
                return tuple(glob.encode() for glob in rule.keys)
        try:
            return inline_filters(client_id)
        except InvalidKeyFilters as invalid:
            # A join was refused for this; only a membership of an older version can still have it.
            log.warning("key_filters_ignored", group=group, client_id=client_id, why=str(invalid))
            return ()

    def rules(self, group: str) -> Rules:
        found = self._set.get(group)
        if found is not None:
            return Rules(found, "rest")
        return Rules(self._config.group(group).filters, "config")

    async def load(self) -> None:
        """Takes the rules that were set before from Redis. Raises RulesNotSaved."""
        try:
            stored: dict[Any, Any] = await self._redis.hgetall(_KEY)
        except (RedisError, OSError) as error:
            raise RulesNotSaved(str(error)) from error
        for name, text in stored.items():
            group = name.decode()
            try:
                self._set[group] = parse_rules(json.loads(text))
            except (ValueError, InvalidRules) as error:
                log.error("key_filters_unreadable", group=group, reason=str(error))
        self._loaded = True

    async def load_until_loaded(self) -> None:
        """`load` until Redis answers."""
        while not self._loaded:
            try:
                await self.load()
            except RulesNotSaved:
                # The window store says in the log that Redis is away; here it only has to come
                # back.
                await asyncio.sleep(MEMBERSHIP_RETRY_MS / 1000)

    async def put(self, group: str, rules: tuple[FilterRule, ...]) -> None:
        """Raises RulesNotSaved. The caller tells the group (`Groups.filters_changed`)."""
        text = json.dumps(rule_rows(rules), separators=(",", ":"))
        try:
            await self._redis.hset(_KEY, group, text)
        except (RedisError, OSError) as error:
            raise RulesNotSaved(str(error)) from error
        self._set[group] = rules

    async def remove(self, group: str) -> None:
        """Back to keyway.yaml. Raises RulesNotSaved."""
        try:
            await self._redis.hdel(_KEY, group)
        except (RedisError, OSError) as error:
            raise RulesNotSaved(str(error)) from error
        self._set.pop(group, None)


def rule_rows(rules: Iterable[FilterRule]) -> list[dict[str, Any]]:
    return [{"client_id": rule.client_id, "keys": list(rule.keys)} for rule in rules]


def parse_rules(rows: object) -> tuple[FilterRule, ...]:
    """[{"client_id": glob, "keys": [glob, ...]}, ...]. Raises InvalidRules."""
    try:
        return FilterRules.model_validate({"rules": rows}).rules
    except ValidationError as error:
        raise InvalidRules(first_fault(error)) from error
