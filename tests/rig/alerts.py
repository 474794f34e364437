"""The alert rules of docs/monitoring, watched over an hour of scrapes on the virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import promql_parser as promql
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from tests.rig.promql import History

MONITORING = Path(__file__).resolve().parents[2] / "docs" / "monitoring"
SCRAPE_S = 60.0

Story = Callable[["Watch"], Coroutine[Any, Any, None]]


class Stories(dict[str, Story]):
    """By alert: the story that makes its condition happen."""

    def of(self, *alerts: str) -> Callable[[Story], Story]:
        def add(story: Story) -> Story:
            self.update(dict.fromkeys(alerts, story))
            return story

        return add


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    expression: str
    for_s: float


def rules() -> dict[str, Rule]:
    groups: list[dict[str, Any]] = yaml.safe_load(
        (MONITORING / "keyway-alerts.yaml").read_text(encoding="utf-8")
    )["groups"]
    found = [_rule(rule) for group in groups for rule in group["rules"]]
    assert len({rule.name for rule in found}) == len(found)
    return {rule.name: rule for rule in found}


def _rule(rule: dict[str, Any]) -> Rule:
    wait: timedelta = promql.parse_duration(rule["for"]) if "for" in rule else timedelta()
    return Rule(rule["alert"], rule["expr"], wait.total_seconds())


async def nothing() -> None:
    pass


@dataclass(slots=True)
class Watch:
    """Scrapes a target every minute, and judges one rule with each scrape."""

    rule: Rule
    up: bool = True
    before: Callable[[], Awaitable[None]] = nothing  # each scrape
    history: History = field(
        default_factory=lambda: History({"job": "keyway", "instance": "node-1:9180"})
    )
    _registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    _true_since: float | None = None
    _fires: bool = False

    def register(self, *collectors: Collector) -> None:
        for collector in collectors:
            self._registry.register(collector)

    async def calm(self, minutes: int = 25) -> None:
        """Raises AssertionError if the alert fires."""
        await self._scrapes(minutes)
        assert not self._fires, "all is well"

    async def amiss(self, minutes: int = 40) -> None:
        """Raises AssertionError if the alert does not fire."""
        await self._scrapes(minutes)
        assert self._fires, f"{self.rule.expression}\n{generate_latest(self._registry).decode()}"

    async def _scrapes(self, count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(SCRAPE_S)
            await self.before()
            now = asyncio.get_running_loop().time()
            self.history.note(now, "up", {}, float(self.up))
            if self.up:
                self.history.scrape(now, generate_latest(self._registry).decode())
            if not self.history.at(self.rule.expression, now):
                self._true_since = None
                continue
            self._true_since = now if self._true_since is None else self._true_since
            self._fires = self._fires or now - self._true_since >= self.rule.for_s
