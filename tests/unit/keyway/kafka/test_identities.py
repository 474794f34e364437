"""A cluster that is not what the file says is refused, at a start and when it comes back later."""

from __future__ import annotations

import pytest

from keyway.clusters.config import Cluster, ClustersConfig, ConfigError
from keyway.kafka.asking import Away
from keyway.kafka.identities import Identities, cluster_id_of

AWAY = Away("no answer at 127.0.0.1:1: timed out")


def config(**expected: str) -> ClustersConfig:
    """Of `a`, `b` and `c`; ids that the file expects, by name."""
    places = [
        {"name": name, "bootstrap_servers": "127.0.0.1:1", "cluster_id": expected.get(name)}
        for name in "abc"
    ]
    tree = {"level": 2, "children": ["a", {"level": 1, "children": ["b", "c"]}]}
    return ClustersConfig.model_validate({"clusters": places, "tree": tree})


class Brokers:
    """Their ids; one without is away."""

    def __init__(self, **ids: str) -> None:
        self.ids = ids
        self.asked: list[str] = []

    def __call__(self, cluster: Cluster) -> str | Away:
        self.asked.append(cluster.name)
        return self.ids.get(cluster.name, AWAY)


def test_a_wrong_id_is_refused() -> None:
    identities = Identities(config(b="right"), Brokers(a="1", b="wrong", c="3"))
    with pytest.raises(ConfigError) as raised:
        identities.look()
    assert str(raised.value) == (
        "b is not the cluster that the file names: its id is wrong, not right"
    )


def test_two_names_of_one_cluster_are_refused() -> None:
    brokers = Brokers(a="1", b="2", c="1")
    with pytest.raises(ConfigError, match=r"a and c are one Kafka cluster \(cluster id 1\)"):
        Identities(config(), brokers).look()
    assert Identities(config(), brokers, each_another=False).look() == {}


def test_a_cluster_that_is_away_is_asked_again_and_no_other_one() -> None:
    brokers = Brokers(a="1", b="2")
    identities = Identities(config(b="2", c="3"), brokers)
    assert identities.look() == {"c": AWAY.reason}
    assert (identities.of("b"), identities.of("c")) == ("2", None)
    brokers.asked.clear()
    assert identities.look(["a", "c"]) == {"c": AWAY.reason}
    brokers.ids["c"] = "3"
    assert identities.look(["b", "c"]) == {}
    assert brokers.asked == ["c", "c"]


@pytest.mark.parametrize(
    ("found", "fault"),
    [("2", "b and c are one Kafka cluster"), ("4", "its id is 4, not 3")],
)
def test_one_that_comes_back_as_another_is_refused(found: str, fault: str) -> None:
    brokers = Brokers(a="1", b="2")
    identities = Identities(config() if found == "2" else config(c="3"), brokers)
    assert "c" in identities.look()
    brokers.ids["c"] = found
    with pytest.raises(ConfigError, match=fault):
        identities.look(["c"])
    with pytest.raises(ConfigError, match=fault):  # of another link
        identities.look(["a"])


def test_one_that_is_doubted_is_asked_again() -> None:
    brokers = Brokers(a="1", b="2", c="3")
    identities = Identities(config(b="2"), brokers)
    identities.look()
    brokers.ids["b"] = "4"
    assert identities.look() == {}
    identities.doubt(["b"])
    assert identities.of("b") is None
    with pytest.raises(ConfigError, match="its id is 4, not 2"):
        identities.look(["b"])


def test_a_real_question_to_nobody_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keyway.kafka.identities.ANSWER_S", 0.1)
    found = cluster_id_of(config().cluster("a"))
    assert isinstance(found, Away)
    assert found.reason.startswith("no answer at 127.0.0.1:1: ")
