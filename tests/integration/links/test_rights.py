"""What a link learns of its rights, from a broker with an authorizer."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AclOperation, ResourceType

from keyway.clusters.config import Cluster
from keyway.kafka.lease import Lease
from offsets.client import ClusterClient
from spark.streaming.core.survey import Position, Tail
from spark.streaming.kafka import KafkaSide
from tests.integration.security.test_rights_of_a_node import allow
from tests.rig.identified_node import guarded_kafka, kafka_password, kafka_user
from tests.rig.kafka import create_topic, produce
from tests.rig.offset_clusters import commit
from tests.rig.patience import wait_until

pytestmark = [pytest.mark.deep, pytest.mark.integration]


def test_a_topic_that_may_be_described_and_not_read() -> None:
    """Kafka lists it, and refuses only its records: with them Spark's query of all topics."""
    with guarded_kafka() as (cluster, address):
        user, password = kafka_user("anna"), kafka_password("anna")
        for name in ("shown", "hidden"):
            create_topic(cluster.bootstrap_servers, name)
        allow(cluster, user, (ResourceType.TOPIC, "shown", AclOperation.DESCRIBE))
        sasl = {"mechanism": "SCRAM-SHA-512", "username": user, "password": password}
        side = KafkaSide(
            Cluster.model_validate({"name": "c1", "bootstrap_servers": address, "sasl": sasl})
        )
        assert set(side.listed()) == {"anna", "shown"}
        found = side.described(["anna", "shown", "hidden"], AclOperation.READ)
        assert isinstance(found["anna"], tuple), "it has READ"
        errors = {name: error for name, error in found.items() if isinstance(error, KafkaError)}
        assert errors.keys() == {"shown", "hidden"}
        codes = {error.code() for error in errors.values()}
        assert codes == {KafkaError.TOPIC_AUTHORIZATION_FAILED}
        assert errors["shown"].str() == "READ is not allowed"
        assert isinstance(side.described(["shown"])["shown"], tuple), "nothing is needed"


def test_a_user_without_a_right_on_any_group_finds_a_log_that_was_cut() -> None:
    """librdkafka asks for a coordinator all the same, and tells that it was refused."""
    with guarded_kafka() as (cluster, address):
        produce(cluster.bootstrap_servers, "anna", [(b"key", b"value")])
        sasl = {"mechanism": "SCRAM-SHA-512"}
        sasl |= {"username": kafka_user("anna"), "password": kafka_password("anna")}
        side = KafkaSide(
            Cluster.model_validate({"name": "c1", "bootstrap_servers": address, "sasl": sasl})
        )
        place = ("anna", 0)
        (tail,) = side.tails([place]).values()
        for offset, epoch, found in ((1, tail.epoch, set()), (1, tail.epoch + 1, {place})):
            position = Position(offset, "", epoch=epoch)
            assert side.cut({place: position}, {place: Tail(1, tail.epoch + 2)}) == found


def test_a_right_that_keeps_the_lease_from_a_process_has_a_name() -> None:
    """librdkafka tells of it once, as a message, and asks on for good."""
    with guarded_kafka() as (_, address):
        sasl = {"mechanism": "SCRAM-SHA-512"}
        sasl |= {"username": kafka_user("anna"), "password": kafka_password("anna")}
        cluster = Cluster.model_validate({"name": "c", "bootstrap_servers": address, "sasl": sasl})
        lease = Lease(cluster.client_settings(), "anna", group="not-hers", session_ms=6_000)
        try:
            wait_until(
                lambda: not lease.poll(0.1) and lease.problem != "", what="a reason", deadline_s=60
            )
        finally:
            lease.release()
        assert "Group authorization failed" in lease.problem


def test_a_commit_in_a_topic_that_may_not_be_described_is_not_gone() -> None:
    """Kafka lists the commits of a group without it, and no error."""
    with guarded_kafka() as (cluster, address):
        create_topic(cluster.bootstrap_servers, "hidden")
        commit(cluster.bootstrap_servers, "anna", "anna", 1)
        commit(cluster.bootstrap_servers, "anna", "hidden", 2)
        sasl = {"mechanism": "SCRAM-SHA-512"}
        sasl |= {"username": kafka_user("anna"), "password": kafka_password("anna")}
        client = ClusterClient(
            Cluster.model_validate({"name": "c", "bootstrap_servers": address, "sasl": sasl})
        )
        assert client.committed(["anna"])["anna"].keys() == {("anna", 0)}
        places = [("anna", "anna", 0), ("anna", "anna", 7), ("anna", "hidden", 0)]
        assert client.without_commit(places) == {("anna", "anna", 7)}
        assert client.without_commit([("not-hers", "anna", 0)]) == set(), "nobody says so"
