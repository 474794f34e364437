"""The clusters' YAML: a whole file, its defaults, and errors that name the field."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from keyway.clusters.config import ConfigError, Selection, load
from keyway.clusters.core.names import Unfit
from keyway.clusters.core.trust import CHECKSUM

FILE = """
    clusters:
      - {name: c1, bootstrap_servers: "127.0.0.1:1"}
      - {name: c2, bootstrap_servers: "127.0.0.1:2"}
      - name: c3
        bootstrap_servers: 127.0.0.1:3
        cluster_id: abc
        topic_pattern: "{tenant}-{topic}"
        pattern_values: {tenant: acme}
        sasl: {mechanism: SCRAM-SHA-256, username: link, password_env: KEYWAY_TEST_PASSWORD}
        tls: {ca_file: /ca.pem, verify_hostname: false}
        registry: {url: "http://127.0.0.1:8081"}
    tree:
      level: 3
      children:
        - c1
        - {level: 1, children: [c2, c3], targets: [c3, c2]}
    topics: {include: ["orders*"], exclude: ["*.tmp"]}
    messages: {delivery: at_least_once}
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "clusters.yaml"
    path.write_text(dedent(text))
    return path


VIEWED = """
    clusters:
      - {{name: a, bootstrap_servers: "127.0.0.1:1"{registry}}}
      - {{name: b, bootstrap_servers: "127.0.0.1:2", registry_view: {{authenticate: {word}}}}}
    tree: {{level: 1, children: [a, b]}}
    {schemas}
"""
PRIMARY = "schemas: {primary: a}"
REGISTRY = ', registry: {url: "http://127.0.0.1:8081"}'


@pytest.mark.parametrize(
    ("registry", "schemas", "problem"),
    [
        (REGISTRY, "", "schemas.primary is missing"),
        ("", "", "schemas.primary is missing"),
        ("", PRIMARY, "a has no registry"),
    ],
)
def test_a_view_that_nobody_authenticates_for_is_refused(
    tmp_path: Path, registry: str, schemas: str, problem: str
) -> None:
    with pytest.raises(ConfigError) as error:
        load(written(tmp_path, VIEWED.format(registry=registry, schemas=schemas, word="true")))
    assert str(error.value).endswith(
        "cluster b: registry_view: authenticate asks the primary's registry, but " + problem
    )
    assert "\n" not in str(error.value)
    load(written(tmp_path, VIEWED.format(registry=registry, schemas=schemas, word="false")))
    load(written(tmp_path, VIEWED.format(registry=REGISTRY, schemas=PRIMARY, word="true")))


def test_a_whole_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load(written(tmp_path, FILE))
    tree = config.checked_tree()
    assert tree.clusters == ("c1", "c2", "c3")
    assert tree.of(tree.clusters[0])[0].targets == ("c3", "c2")
    assert config.messages.delivery == "at_least_once"
    assert config.cluster("c1").client_settings() == {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "PLAINTEXT",
    }
    monkeypatch.setenv("KEYWAY_TEST_PASSWORD", "secret word")
    assert config.cluster("c3").client_settings() == {
        "bootstrap.servers": "127.0.0.1:3",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "link",
        "sasl.password": "secret word",
        "ssl.ca.location": "/ca.pem",
        "ssl.endpoint.identification.algorithm": "none",
    }
    with pytest.raises(ConfigError, match="no cluster c9: there are c1, c2, c3"):
        config.cluster("c9")


def test_names_of_topics_and_groups(tmp_path: Path) -> None:
    plain, patterned = (load(written(tmp_path, FILE)).cluster(cluster) for cluster in ("c1", "c3"))
    assert plain.topic_names().there("orders.eu") == "orders.eu"
    assert patterned.topic_names().there("acme-orders.eu") == "orders.eu"
    assert patterned.topic_names().back("orders.eu") == "acme-orders.eu"
    assert isinstance(patterned.topic_names().there("other-orders"), Unfit)
    assert patterned.group_names().there("billing") == "billing"


def test_a_variable_that_is_not_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KEYWAY_TEST_PASSWORD", raising=False)
    config = load(written(tmp_path, FILE))
    with pytest.raises(ConfigError, match="KEYWAY_TEST_PASSWORD is not set"):
        config.cluster("c3").client_settings()
    assert config.seals() == CHECKSUM
    sealed = load(written(tmp_path, FILE + "    seal_secret_env: KEYWAY_TEST_PASSWORD\n"))
    with pytest.raises(ConfigError, match="KEYWAY_TEST_PASSWORD is not set"):
        sealed.seals()


def test_secrets_in_files(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("sesame\n")
    in_file = FILE.replace("password_env: KEYWAY_TEST_PASSWORD", f"password_file: {path}")
    config = load(written(tmp_path, in_file + f"    seal_secret_file: {path}\n"))
    assert config.cluster("c3").client_settings()["sasl.password"] == "sesame"
    assert config.seals().secrets == ("sesame",)
    both = f"    seal_secret_env: NEW\n    seal_secret_file: [{path}]\n"
    with pytest.raises(ConfigError, match="either seal_secret_env or seal_secret_file"):
        load(written(tmp_path, FILE + both))


def test_the_secrets_of_seals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEW", "sesame")
    monkeypatch.setenv("OLD", "hunter2")
    alone = load(written(tmp_path, FILE + "    seal_secret_env: NEW\n")).seals()
    both = load(written(tmp_path, FILE + "    seal_secret_env: [NEW, OLD]\n")).seals()
    assert (alone.secrets, both.secrets) == (("sesame",), ("sesame", "hunter2"))
    assert not alone.checksums_believed
    assert "sesame" not in repr(both)
    first = load(
        written(tmp_path, FILE + "    seal_secret_env: NEW\n    believe_checksums: true\n")
    )
    assert first.seals().checksums_believed
    with pytest.raises(ConfigError, match="seal_secret_env"):
        load(written(tmp_path, FILE + "    seal_secret_env: [A, B, C, D, E]\n"))


def test_names_by_globs() -> None:
    chosen = Selection(include=("orders*", "users"), exclude=("*.tmp",))
    names = ("orders", "orders.eu", "orders.tmp", "users", "users2", "Orders")
    assert [name for name in names if chosen.takes(name)] == ["orders", "orders.eu", "users"]
    assert Selection().takes("anything")


WRONG = {
    "unknown field": ("cluster_id: abc", "clusterid: abc", "clusters.2.clusterid: unknown field"),
    "unknown section": ("topics:", "topic:", "topic: unknown field"),
    "bad url": ("http://127.0.0.1:8081", "127.0.0.1:8081", "clusters.2.registry.url: "),
    "bad name": ("name: c2", "name: 'c 2'", "clusters.1.name: "),
    "twice": ("name: c2", "name: c1", "clusters: cluster c1 is listed 2 times"),
    "no place": ("[c2, c3]", "[c2, c1]", "tree: cluster c1 is 2 times in the tree"),
    "unknown cluster": ("- c1\n", "- c9\n", "tree: c9 is not one of the clusters"),
    "no level": ("{level: 1, children", "{children", "tree: the node of c2, c3 has no level"),
    "inverted": ("{level: 1,", "{level: 4,", "tree: the node of c2, c3 has level 4"),
    "no number": ("{level: 1,", "{level: one,", "tree.children.1.level: "),
    "target": ("targets: [c3, c2]", "targets: [c1]", "tree: c1 cannot be the target of c1"),
    "delivery": ("at_least_once", "at_most_once", "messages.delivery: "),
    "lost field": ("{tenant: acme}", "{}", "clusters.2: patterns '{tenant}-{topic}' and"),
    "bad pattern": ("{tenant}-{topic}", "{tenant}-{x", "clusters.2: pattern '{tenant}-{x': "),
    "two passwords": ("password_env: K", "password: x, password_env: K", "clusters.2.sasl: one of"),
    "password": ("127.0.0.1:3", "u:hunter2@h:3", "clusters.2.bootstrap_servers: holds an '@'"),
    "url with password": (
        "http://127.0.0.1:8081",
        "http://u:p@h",
        "clusters.2.registry.url: holds",
    ),
    "no yaml": ("children: [c2, c3]", "children: [c2, c3", "not valid YAML at line"),
}


@pytest.mark.parametrize(("old", "new", "fault"), WRONG.values(), ids=WRONG)
def test_errors_name_the_field(tmp_path: Path, old: str, new: str, fault: str) -> None:
    assert old in FILE
    path = written(tmp_path, FILE.replace(old, new))
    with pytest.raises(ConfigError) as error:
        load(path)
    assert str(error.value).startswith(f"{path}: {fault}"), error.value


def test_a_cluster_that_is_not_in_the_tree(tmp_path: Path) -> None:
    more = '      - {name: c4, bootstrap_servers: "127.0.0.1:4"}\n    tree:'
    with pytest.raises(ConfigError, match="tree: cluster c4 is not in it"):
        load(written(tmp_path, FILE.replace("    tree:", more)))


def test_targets_of_one_link(tmp_path: Path) -> None:
    link = "targets: [{cluster: c1, level: 3, targets: [c2]}]\n"
    config = load(written(tmp_path, dedent(FILE) + link))
    assert config.checked_tree().distributors[0].targets == ("c2",)
    twice = link.replace("]}]", "]}, {cluster: c1, level: 3, targets: [c3]}]")
    with pytest.raises(ConfigError, match="targets of c1 at level 3 are given twice"):
        load(written(tmp_path, dedent(FILE) + twice))


def test_an_empty_file_lacks_its_sections(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="clusters: is missing"):
        load(written(tmp_path, ""))


@pytest.mark.parametrize("text", ["[]", "just text"])
def test_no_mapping(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="a mapping is expected"):
        load(written(tmp_path, text))


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "none.yaml")


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    text = FILE.replace("password_env: KEYWAY_TEST_PASSWORD", "password: hunter2")
    assert "hunter2" not in repr(load(written(tmp_path, text)))
    wrong = text.replace("password: hunter2", "password: [hunter2]")
    with pytest.raises(ConfigError) as error:
        load(written(tmp_path, wrong))
    assert "hunter2" not in str(error.value)
