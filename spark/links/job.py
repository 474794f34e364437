"""The job of `keyway distribute run`, and of `spark-submit`: the links of one cluster, until a
signal ends it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import structlog

from keyway import service
from keyway.clusters.config import load
from keyway.clusters.core.tree import ClusterName
from keyway.kafka.identities import Identities
from spark.links.turns import run_links
from spark.session import SETTINGS, kafka_session

log = structlog.get_logger("keyway.links")


def run_job(
    config: Path, cluster: str, level: int | None, *, master: str | None, from_start: bool = False
) -> None:
    """Copies until SIGTERM or SIGINT. `master` None: as spark-submit says. Raises ConfigError,
    TreeError, and the errors that end a link.
    """
    stop = service.started()
    settings = load(config)
    settings.cluster(cluster)
    settings.seals()
    identities = Identities(settings)
    for name, reason in identities.look().items():
        log.warning("cluster_is_away", cluster=name, reason=reason)
    session = kafka_session(f"keyway-{cluster}", master=master, settings=SETTINGS)
    try:
        source = ClusterName(cluster)
        run_links(
            session,
            settings,
            source,
            level=level,
            stop=stop,
            from_start=from_start,
            identities=identities,
        )
    finally:
        session.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path)
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--level", type=int)
    parser.add_argument("--from-start", action="store_true")
    given = parser.parse_args()
    run_job(given.config, given.cluster, given.level, master=None, from_start=given.from_start)


if __name__ == "__main__":
    main()
