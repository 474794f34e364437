"""`make campaign NAME=...`: the long runs that `make test` plays only a short form of.

`python -m tests.campaigns` lists them, `python -m tests.campaigns NAME ...` runs one; more words
are its own. Each has its short form in a test, so that none breaks unseen: `shortly` names it, and
test_campaigns.py has those that need no servers.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

_SHORT = "tests/test_campaigns.py"
_WITH_SERVERS = "tests/integration/campaigns/test_short_forms.py"
_BETWEEN_CLUSTERS = "tests/integration/offsets/test_short_campaigns.py"


@dataclass(frozen=True, slots=True)
class Campaign:
    about: str
    words: tuple[str, ...]  # behind `python`
    shortly: str  # the test with its short form
    environment: Mapping[str, str] = field(default_factory=dict)  # what the shell has wins


def _tests(*words: str) -> tuple[str, ...]:
    return ("-m", "pytest", "--timeout", "7200", *words)


CAMPAIGNS = {
    "chaos": Campaign(
        "kill -9 of everything under load (--rounds n, --seed n to replay)",
        ("-m", "tests.chaos"),
        "tests/integration/crashes/test_chaos.py",
    ),
    "rolling": Campaign(
        "rolling restarts of stock clients (--rounds n, --seed n of the first)",
        ("-m", "tests.chaos.rolling"),
        "tests/integration/crashes/test_rolling_restart.py",
    ),
    "repartition": Campaign(
        "a topic grows, or moves, and its gateway is killed (--rounds n, --seed n of the first)",
        ("-m", "tests.chaos.repartition"),
        "tests/integration/repartition/test_rounds.py",
    ),
    "nodes": Campaign(
        "three nodes, restarted, killed, frozen, cut off, added (--acts kill,rolling --rounds n)",
        ("-m", "tests.chaos.nodes"),
        "tests/integration/nodes/test_two_nodes.py",
    ),
    "hostile": Campaign(
        "attacks on a node beside clients that do nothing wrong (tiny_records --seconds 5)",
        ("-m", "tests.hostile"),
        _WITH_SERVERS,
    ),
    "fuzz": Campaign(
        "recorded traffic and REST bodies, mutated (--inputs n, codec --seed 7 --inputs 1)",
        ("-m", "tests.fuzz"),
        "tests/fuzz/test_fuzz.py",
    ),
    "distribution": Campaign(
        "records across clusters: KEYWAY_TESTS_RECORDS (1,000) an origin, KEYWAY_TESTS_KILLS (50)",
        _tests(
            *("tests/spark/test_trees.py", "tests/spark/test_distribute.py"),
            *("tests/spark/test_kills.py", "tests/spark/test_slow_target.py"),
            "tests/spark/test_spark_submit.py",
            "tests/integration/operations/test_demo_clusters.py",
        ),
        "tests/spark/test_kills.py",
        {"KEYWAY_TESTS_RECORDS": "1000", "KEYWAY_TESTS_KILLS": "50"},
    ),
    "offsets": Campaign(
        "offsets that follow: KEYWAY_TESTS_HISTORIES (20) on real Kafkas, a Spark query that moves",
        _tests(
            *("tests/unit/offsets", "tests/property/test_offset_histories.py"),
            *("tests/integration/offsets", "tests/spark/test_checkpoint_moves.py"),
            "tests/spark/test_demo_failover.py",
        ),
        "tests/integration/offsets/test_histories.py",
        {"KEYWAY_TESTS_HISTORIES": "20"},
    ),
    "schemas": Campaign(
        "schema distribution, killed KEYWAY_TESTS_SCHEMA_KILLS (20) times",
        _tests("tests/unit/schema_dist", "tests/shell/schema_dist", "tests/integration/schemas"),
        "tests/integration/schemas/test_rest_target.py",
        {"KEYWAY_TESTS_SCHEMA_KILLS": "20"},
    ),
    "schemas-peers": Campaign(
        "registries that run already (--karapace URL --karapace-kafka HOST:PORT --import URL)",
        ("-m", "tests.peers"),
        _WITH_SERVERS,
    ),
    "bench-links": Campaign(
        "one link beside MirrorMaker 2 on the same copy (--records n --rounds n, --lag 60)",
        ("-m", "tests.bench.links"),
        _BETWEEN_CLUSTERS,
    ),
    "bench-view": Campaign(
        "a registry view under look-ups of 16 MB, beside its node",
        ("-m", "tests.bench.schema_view"),
        _WITH_SERVERS,
    ),
    "bench-beside": Campaign(
        "a node alone beside that of another checkout, compiled alike (dir --rounds n)",
        ("-m", "tests.bench.beside"),
        _WITH_SERVERS,
    ),
    "bench-workers": Campaign(
        "CPU per record of two workers beside one, 10,000 keys, 100 members (records rounds)",
        ("-m", "tests.bench.workers"),
        _WITH_SERVERS,
    ),
    "bench-repartition": Campaign(
        "latency while a topic grows; cost when none does (--seconds n, --rounds n, 0: not)",
        ("-m", "tests.bench.repartition"),
        _WITH_SERVERS,
    ),
    "bench-window": Campaign(
        "the CPU of a window's shell beside another checkout, compiled alike (--against dir)",
        ("-m", "tests.bench.window_cost"),
        _SHORT,
    ),
    "distribution-scale": Campaign(
        "distribution at its stated size: 1,000 topics, 10,000 partitions, 1,000 groups",
        ("-m", "tests.bench.scale"),
        _BETWEEN_CLUSTERS,
    ),
    "parked-scale": Campaign(
        "100 parked keys, then ten million records of others: rate, memory, restart",
        ("-m", "tests.bench.parked_scale"),
        _SHORT,
    ),
    "release": Campaign(
        "wheels for each Python here and the sdist, installed and tried; SBOM, licences",
        ("-m", "tests.release"),
        _SHORT,
    ),
    "containers": Campaign(
        "the images and docker-compose.yml under podman (--interpreted: compiles nothing)",
        ("-m", "tests.containers"),
        _SHORT,
    ),
    "conformance": Campaign(
        "public suites, direct and through the gateway (--kafka-python checkout, --suites a,b)",
        ("-m", "tests.conformance.suites"),
        "tests/conformance/suites/test_short_form.py",
    ),
    "ring": Campaign(
        "how evenly keys are spread, with and without bounded loads; writes build/ring.json",
        ("-m", "tests.bench.ring"),
        _SHORT,
    ),
}


def main() -> int:
    name, *more = sys.argv[1:] or [""]
    campaign = CAMPAIGNS.get(name)
    if campaign is None:
        listed = "\n".join(f"  {name:19} {each.about}" for name, each in CAMPAIGNS.items())
        sys.stderr.write(f"make campaign NAME=... [ARGS=...], with a NAME of these:\n{listed}\n")
        return 2 if name else 0
    sys.stdout.flush()
    command = [sys.executable, *campaign.words, *more]
    os.execve(sys.executable, command, {**campaign.environment, **os.environ})


if __name__ == "__main__":
    sys.exit(main())
