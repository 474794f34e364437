"""The topics that follow, also without a word about topics in the configuration."""

from __future__ import annotations

import pytest

from keyway.clusters.config import ClustersConfig
from keyway.clusters.core.internal import DISTRIBUTION_TOPIC, OFFSETS_TOPIC, SCHEMAS_TOPIC
from spark.links.naming import following

MADE_BY_TOOLS = (
    "__consumer_offsets",
    "__transaction_state",
    "_schemas",
    OFFSETS_TOPIC,
    DISTRIBUTION_TOPIC,
    SCHEMAS_TOPIC,
    "billing-sums-store-changelog",
    "billing-sums-repartition",
    "billing-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000006-topic",
    "billing-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000014-topic",
    "billing-invoices-subscription-registration-topic",
    "billing-invoices-subscription-response-topic",
    "my_connect_configs",
    "my_connect_offsets",
    "my_connect_statuses",
    "kafkasql-journal",
    "strimzi.cruisecontrol.metrics",
    "connect-configs",
    "docker-connect-offsets",
    "connect-cluster-status",
    "mm2-offsets.fra.internal",
    "checkpoints-internal",
    "orders.replica",
)
OF_APPLICATIONS = (
    *("orders", "changelog", "connect-orders", "order-status", "internal-mails"),
    *("disconnected_status_orders", "news-topic", "subscription-responses"),
)


def config(**sections: object) -> ClustersConfig:
    return ClustersConfig.model_validate(
        {
            "clusters": [
                {"name": "ams", "bootstrap_servers": "127.0.0.1:1"},
                {"name": "fra", "bootstrap_servers": "127.0.0.1:2"},
            ],
            "tree": {"level": 1, "children": ["ams", "fra"]},
            **sections,
        }
    )


def taken(found: ClustersConfig) -> list[str]:
    source, target = found.clusters
    names = MADE_BY_TOOLS + OF_APPLICATIONS
    return [topic.logical for topic in following(found, source, target, names)]


def test_without_a_word_about_topics_those_of_applications_follow() -> None:
    assert taken(config()) == list(OF_APPLICATIONS)
    assert taken(config(topics={"include": ["*log"]})) == ["changelog"]


def test_other_excludes_take_the_place_of_the_default_ones() -> None:
    """Only names that begin with `_` stay where they are whatever the file says."""
    found = taken(config(topics={"exclude": ["orders"]}))
    assert found == [
        name for name in MADE_BY_TOOLS + OF_APPLICATIONS if name[0] != "_" and name != "orders"
    ]


@pytest.mark.parametrize(
    "section", [{"messages": {"status_topic": "state"}}, {"schemas": {"state_topic": "state"}}]
)
def test_a_topic_of_state_has_an_internal_name(section: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="should match pattern"):
        config(**section)
