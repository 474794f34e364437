"""`keyway schemas run`: follows the primary and brings every target up to date, until stopped.

One task reads the primary. One task per target runs a round when there is news, when a round
failed, and now and then in case somebody else wrote to the target. A target that is away keeps no
other target waiting. Every target is told again and again that the service is alive, and whether
the primary can be read: a status that says nothing new may otherwise be that of a dead service.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import structlog

from keyway.clusters.config import ClustersConfig, ConfigError
from keyway.kafka.identities import Identities
from keyway.service import Backoff, serve_metrics, wall_ms
from schema_dist.core.contents import Contents
from schema_dist.errors import AwayError, LogError, RefusedError
from schema_dist.lease import Lease
from schema_dist.limits import (
    BEAT_S,
    LOGGED_MAX,
    REREAD_S,
    REREAD_S_MAX,
    RETRY_S_MAX,
    RETRY_S_MIN,
    WRITING_TOLD_EVERY_S,
)
from schema_dist.metrics import Metrics
from schema_dist.parts import (
    Source,
    TargetParts,
    allowed,
    confirming_of,
    log_topic,
    primary_of,
    source_of,
    target_of,
    targets_of,
)
from schema_dist.state_topic import StateTopic
from schema_dist.status import status_of
from schema_dist.target_sync import Allowed, Round, TargetSync
from schema_dist.tasks import together

LEASE_GROUP = "keyway-schemas"
_LOG = structlog.get_logger("keyway.schemas")
_FAILURES = (AwayError, LogError, RefusedError)


class News:
    """The source's contents, and a number that grows when they change. `problem`: why they cannot
    be read now; None: they can.
    """

    def __init__(self) -> None:
        self.contents: Contents | None = None
        self.problem: str | None = None
        self.revision = 0
        self._changed = asyncio.Condition()

    async def publish(self, contents: Contents) -> None:
        async with self._changed:
            self.contents = contents
            self.revision += 1
            self._changed.notify_all()

    async def again(self) -> None:
        """The same contents, to be looked at once more."""
        if self.contents is not None:
            await self.publish(self.contents)

    async def wait_past(self, revision: int, seconds: float | None = None) -> None:
        """Returns when there is something newer, or after `seconds`."""
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(lambda: self.revision > revision)
        except TimeoutError:
            return


async def run(config: ClustersConfig) -> None:
    """Runs until it is cancelled. Raises LeaseError, ConfigError, PatternError, and AwayError only
    while it starts.
    """
    primary = primary_of(config)
    metrics = Metrics()
    serve_metrics(config.schemas.metrics_port, metrics.registry)
    identities = Identities(config, each_another=False)
    away = await asyncio.to_thread(identities.look)
    for name, reason in away.items():
        _LOG.warning("cluster_is_away", cluster=name, reason=reason)
    if primary.name in away:
        raise AwayError(f"{primary.name}: {away[primary.name]}")
    require_other_logs(config, identities)
    settings, topic = primary.client_settings(), config.schemas.state_topic
    await asyncio.to_thread(StateTopic(settings, topic).ensure)
    lease = Lease(settings, topic, group=LEASE_GROUP, session_ms=config.schemas.lease_session_ms)
    try:
        await lease.take()
        _LOG.info("schemas_distributed", primary=primary.name)
        async with AsyncExitStack() as stack:
            source = await stack.enter_async_context(source_of(primary))
            targets = [
                await stack.enter_async_context(target_of(config, cluster, lease))
                for cluster in targets_of(config)
            ]
            confirming = await stack.enter_async_context(confirming_of(primary))
            may = replace(allowed(config, confirming), still_ours=lease.still_ours)
            news = News()
            followers = [Follower(parts, primary.name, metrics, may) for parts in targets]
            await together(
                [
                    lease.keep(),
                    follow(
                        source,
                        news,
                        metrics,
                        config.schemas.poll_interval_ms,
                        [parts.name for parts in targets],
                    ),
                    confirming.run(news.again),
                    *(_identified(config, identities, each, news, metrics) for each in followers),
                ]
            )
    finally:
        await lease.release()


async def _identified(
    config: ClustersConfig, identities: Identities, follower: Follower, news: News, metrics: Metrics
) -> None:
    """Runs the follower once its cluster has answered and is the one that the file means. Raises
    ConfigError.
    """
    backoff = Backoff(RETRY_S_MIN, RETRY_S_MAX)
    while await asyncio.to_thread(identities.look, [follower.name]):
        metrics.failed(follower.name)
        await asyncio.sleep(backoff.failed())
    require_other_logs(config, identities)
    await follower.run(news)


def require_other_logs(config: ClustersConfig, identities: Identities) -> None:
    """Two registries may have one Kafka, but not one log. Raises ConfigError."""
    primary = primary_of(config)
    here = (identities.of(primary.name), log_topic(primary))
    for cluster in targets_of(config):
        by_log = cluster.registry is None or cluster.registry.writes == "log"
        if by_log and (identities.of(cluster.name), log_topic(cluster)) == here:
            raise ConfigError(
                f"{primary.name} and {cluster.name} are one Kafka cluster (cluster id {here[0]})"
                f" with one registry's log, {here[1]}: the primary would follow itself"
                " (another log's topic is named by registry.topic)"
            )


async def follow(
    source: Source,
    news: News,
    metrics: Metrics,
    poll_interval_ms: int,
    targets: Sequence[str],
) -> None:
    """Reads the source again and again, and publishes its changes. A source that cannot be read
    counts as a failed round of all `targets`: nobody knows whether they are in sync.
    """
    known, changes = Contents(), -1
    backoff = Backoff(RETRY_S_MIN, RETRY_S_MAX)
    while True:
        try:
            contents = await source.read()
        except _FAILURES as error:
            wait_s = backoff.failed()
            _LOG.warning("source_unreadable", error=str(error), retry_s=wait_s)
            news.problem = f"the primary cannot be read: {error}"
            for target in targets:
                metrics.failed(target)
            await asyncio.sleep(wait_s)
            continue
        backoff.worked()
        news.problem = None
        same = contents.changes == changes if contents is known else contents == known
        bad = sum(contents.malformed.values())
        if bad > metrics.bad_records:
            _LOG.warning("source_records_skipped", why=dict(contents.malformed))
        metrics.source(bad)
        if not same or news.revision == 0:
            await news.publish(contents)
        known, changes = contents, contents.changes
        await asyncio.sleep(poll_interval_ms / 1000)


class Follower:
    """One target, kept up to date."""

    def __init__(self, parts: TargetParts, source: str, metrics: Metrics, may: Allowed) -> None:
        self.name = parts.name
        self._source = source
        self._state = parts.state
        self._metrics = metrics
        self._last_write_ms: int | None = None
        self._told_s = 0.0
        self._status: dict[str, Any] = {}
        self._problem: str | None = None  # why there was no round since the last status
        self._sync = TargetSync(
            parts.target,
            parts.state,
            parts.names,
            parts.follows,
            may,
            self._progress,
        )

    def _progress(self, behind: int) -> None:
        """Called before each batch of writes of a round."""
        self._metrics.progress(self.name, behind)
        if behind and time.monotonic() - self._told_s > WRITING_TOLD_EVERY_S:
            _LOG.info("versions_to_write", target=self.name, behind=behind)
            self._told_s = time.monotonic()

    async def run(self, news: News) -> None:
        """Runs until it is cancelled."""
        await together([self._follow(news), self._beat(news)])

    async def _beat(self, news: News) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            with contextlib.suppress(AwayError):  # the next round finds out by itself
                await self._state.beat(self._heading(news))

    def _heading(self, news: News) -> dict[str, Any]:
        problem = self._problem or news.problem
        place = {"target": self.name, "source": self._source, "problem": problem}
        return place | {"at_ms": wall_ms()}

    async def _follow(self, news: News) -> None:
        await news.wait_past(0)
        revision, read_s = 0, time.monotonic()
        backoff = Backoff(RETRY_S_MIN, RETRY_S_MAX)
        shown: object = None
        while True:
            assert news.contents is not None
            revision, self._told_s = news.revision, time.monotonic()
            try:
                done = await self._sync.round(news.contents)
                self._metrics.round(self.name, done)
                self._problem = None
                if done.writes or (done.refusals, done.behind) != shown:
                    shown = (done.refusals, done.behind)
                    await self._report(done, news)
            except _FAILURES as error:
                self._metrics.failed(self.name)
                shown, wait_s = None, backoff.failed()
                self._problem = str(error)
                with contextlib.suppress(AwayError):
                    await self._state.report(self._heading(news) | self._status)
                _LOG.warning(
                    "target_behind",
                    target=self.name,
                    error=str(error),
                    retry_s=wait_s,
                )
                await asyncio.sleep(wait_s)
                continue
            backoff.worked()
            unfinished = done.behind > 0
            await news.wait_past(revision, RETRY_S_MAX if unfinished else REREAD_S)
            quiet = news.revision == revision
            if quiet or time.monotonic() - read_s > REREAD_S_MAX:
                self._sync.read_anew()
                read_s = time.monotonic()

    async def _report(self, done: Round, news: News) -> None:
        if done.writes:
            self._last_write_ms = wall_ms()
            _LOG.info(
                "versions_written",
                target=self.name,
                in_sync=done.in_sync,
                writes=dict(done.writes),
            )
        for refusal in done.refusals[:LOGGED_MAX]:
            _LOG.warning("version_refused", target=self.name, what=str(refusal))
        if len(done.refusals) > LOGGED_MAX:
            _LOG.warning("more_versions_refused", target=self.name, count=len(done.refusals))
        self._status = status_of(done, last_write_ms=self._last_write_ms)
        await self._state.report(self._heading(news) | self._status)
