"""Two nodes whose Redis is the primary of three Sentinels, under load: an ordered fail-over, in
which the former primary takes writes for seconds, and the death of a primary. Its replica lacks
what it had not been sent: that comes again. Nothing is lost, and keys stay in order.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.embedded.kafka import KafkaCluster
from tests.chaos.judge import Flush
from tests.chaos.nodes.load import Load
from tests.chaos.nodes.site import Nodes
from tests.rig.clients.share_members import ShareHost
from tests.rig.operating import health
from tests.rig.patience import wait_until
from tests.rig.sentinels import PASSWORD, SENTINEL_PASSWORD, SentinelSite

pytestmark = [pytest.mark.deep, pytest.mark.integration]

COMMIT_INTERVAL_MS = 5_000


def fail_over(
    site: SentinelSite, load: Load, act: Callable[[], object], left: Callable[[], bool]
) -> Flush:
    """`left`: no node works with the former primary any more, which took writes until then."""
    before = site.primary()
    at_ns = time.monotonic_ns()
    act()
    site.wait_for_another(before)
    wait_until(left, what="nodes that have left the former primary", deadline_s=30)
    load.wait_for_more(20)
    load.wait_until_told()
    return Flush(at_ns, time.monotonic_ns(), frozenset(), (), COMMIT_INTERVAL_MS)


def test_fail_overs_under_load(
    kafka_pair: KafkaCluster,
    fresh_name: Callable[[str], str],
    java_host: ShareHost,
    librdkafka_host: ShareHost,
    tmp_path: Path,
) -> None:
    with SentinelSite(tmp_path / "sentinels") as site:
        nodes = Nodes(tmp_path, kafka_pair, "ab", sentinels=site)
        load = Load(
            kafka_pair.bootstrap_servers,
            fresh_name("orders"),
            brokers=2,
            partitions=4,
            per_second=40,
        )
        with nodes.running("ab"):
            hosts = (java_host, librdkafka_host, java_host, librdkafka_host)
            # Whose acknowledgement is lost but not its lease comes again when that ends.
            load.join(hosts, nodes.bootstrap, fresh_name("lock"))
            with load.running():
                load.wait_for_more(20)

                def left() -> bool:
                    logs = (node.log_text() for node in nodes.nodes.values())
                    return all("redis_primary_changed" in log for log in logs)

                flushes = [fail_over(site, load, site.order_fail_over, left)]
                site.wait_for_replica()
                load.wait_for_more(20)
                # The killed one takes no writes, and a node that asks anew says nothing of it.
                flushes.append(fail_over(site, load, site.kill_primary, lambda: True))
                nodes.wait_for_owners("ab")
            verdict = load.finish(flushes)
            assert (verdict.lost, verdict.reordered, verdict.faults) == (0, 0, ()), verdict
            wait_until(
                lambda: all(health(process)[0] == 200 for process in nodes.nodes.values()),
                what="healthy nodes",
                deadline_s=30,
            )
    with (tmp_path / "figures").open("w") as figures:
        figures.write(f"{verdict}\n")
    for node in nodes.nodes.values():
        log = node.log_text()
        assert not re.search(r"handler_failed|dispatcher_bug|Traceback", log)
        assert "redis_primary_changed" in log
        assert PASSWORD not in log
        assert SENTINEL_PASSWORD not in log
