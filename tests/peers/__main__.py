"""`python -m tests.peers --karapace URL --karapace-kafka HOST:PORT --import URL`: runs the tests of
this folder against registries that are running already. `--user NAME`: of both registries, the
password is in KEYWAY_PEERS_PASSWORD. `--ca FILE`: PEM, for their TLS. More words are pytest's.
"""

from __future__ import annotations

import argparse
import os
import ssl
import subprocess
import sys
from pathlib import Path

import httpx
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.peers.registries import CA_FILE, IMPORTING, KAFKA, KARAPACE, PASSWORD, TOPIC, USER, known

ANSWER_S_MAX = 10.0
_NONE = "no registry is named: give --karapace URL with --karapace-kafka HOST:PORT, or --import URL"


def fault(options: argparse.Namespace) -> str | None:
    """The reason for which the tests cannot run; None if they can."""
    if not options.karapace and not options.importing:
        return _NONE
    if bool(options.karapace) != bool(options.kafka):
        return "--karapace and --karapace-kafka need each other"
    if options.user and not os.environ.get(PASSWORD):
        return f"--user needs the password in the environment variable {PASSWORD}"
    try:
        trust = ssl.create_default_context(cafile=options.ca or None)
    except OSError as error:
        return f"--ca {options.ca}: {error}"
    for url in filter(None, (options.karapace, options.importing)):
        try:
            httpx.get(
                f"{url}/subjects",
                auth=known(),
                verify=trust,
                timeout=ANSWER_S_MAX,
                trust_env=False,
            ).raise_for_status()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return f"the registry {url} does not answer: {error}"
    if options.kafka:
        admin = AdminClient({"bootstrap.servers": options.kafka, "log_level": 0})
        try:
            topics = admin.list_topics(timeout=ANSWER_S_MAX).topics
        except KafkaException as error:
            return f"the Kafka {options.kafka} does not answer: {error.args[0].str()}"
        if options.topic not in topics:
            return f"the Kafka {options.kafka} has no topic {options.topic}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="make campaign NAME=schemas-peers", description=__doc__)
    parser.add_argument("--karapace", metavar="URL", default="")
    parser.add_argument("--karapace-kafka", dest="kafka", metavar="HOST:PORT", default="")
    parser.add_argument("--karapace-topic", dest="topic", default="_schemas")
    parser.add_argument("--import", dest="importing", metavar="URL", default="")
    parser.add_argument("--user", metavar="NAME", default="")
    parser.add_argument("--ca", metavar="FILE", default="")
    options, more = parser.parse_known_args()
    options.karapace, options.importing = (
        url.rstrip("/") for url in (options.karapace, options.importing)
    )
    os.environ |= {
        KARAPACE: options.karapace,
        KAFKA: options.kafka,
        TOPIC: options.topic,
        IMPORTING: options.importing,
        USER: options.user,
        CA_FILE: str(Path(options.ca).resolve()) if options.ca else "",
    }
    problem = fault(options)
    if problem is not None:
        sys.stderr.write(f"keyway: {problem}\n")
        return 2
    # A process of its own: pytest rewrites modules, and these are imported already.
    command = [sys.executable, "-m", "pytest", "-v", "tests/peers", *more]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
