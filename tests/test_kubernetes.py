"""deploy/kubernetes against Kubernetes' own schemas, and against what Keyway is and listens on."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from gateway.admin.api import OPERATIONS
from gateway.cli.main import app
from gateway.config.file import Config, ConfigError, load
from gateway.node.limits import WORKER_STOP_S_MAX
from tests.rig.quick_start import REPOSITORY

FOLDER = REPOSITORY / "deploy" / "kubernetes"
VERSIONS = ("1.29", "1.37")  # the oldest that we say it is for, and the newest that is known here
LABELS = {"app.kubernetes.io/name": "keyway"}
NAMESPACE = "keyway"
TOKEN = "0" * 64


def documents() -> list[dict[str, Any]]:
    """Of the files that kustomization.yaml names."""
    found: list[dict[str, Any]] = []
    for name in kustomization()["resources"]:
        found += yaml.safe_load_all((FOLDER / name).read_text("utf-8"))
    return found


def kustomization() -> dict[str, Any]:
    return dict(yaml.safe_load((FOLDER / "kustomization.yaml").read_text("utf-8")))


def one(kind: str, name: str = "keyway") -> dict[str, Any]:
    (found,) = [
        document
        for document in documents()
        if (document["kind"], document["metadata"]["name"]) == (kind, name)
    ]
    return found


def pod() -> dict[str, Any]:
    return dict(one("StatefulSet")["spec"]["template"]["spec"])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "document",
    documents(),
    ids=lambda manifest: f"{manifest['kind']}-{manifest['metadata']['name']}",
)
def test_manifests_fit_the_schema(document: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(document, version, strict=True)


def test_the_schema_finds_a_wrong_name() -> None:
    wrong = one("StatefulSet")
    wrong["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_every_file_is_used() -> None:
    named = {"kustomization.yaml", *kustomization()["resources"]}
    (secret,) = kustomization()["secretGenerator"]
    assert {file.name for file in FOLDER.iterdir()} == named | set(secret["files"])
    assert kustomization()["namespace"] == NAMESPACE
    (volume,) = [mounted for mounted in pod()["volumes"] if "secret" in mounted]
    assert volume["secret"]["secretName"] == secret["name"]
    (image,) = kustomization()["images"]
    containers = [*pod()["initContainers"], *pod()["containers"]]
    assert {container["image"] for container in containers} == {image["name"]}


def test_all_select_the_pods_of_the_set() -> None:
    workload = one("StatefulSet")["spec"]
    assert workload["template"]["metadata"]["labels"] == LABELS
    assert workload["selector"]["matchLabels"] == LABELS
    assert one("PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == LABELS
    for name in ("keyway", "keyway-bootstrap"):
        assert one("Service", name)["spec"]["selector"] == LABELS
    headless = one("Service")["spec"]
    assert headless["clusterIP"] == "None"
    assert headless["publishNotReadyAddresses"], (
        "nodes ask each other by name before they are ready"
    )
    assert workload["serviceName"] == one("Service")["metadata"]["name"]
    assert one("PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def rendered(tmp_path: Path, name: str, token: str = TOKEN) -> Config:
    """As the init container does it, by its own command."""
    (init,) = pod()["initContainers"]
    template = tmp_path / "template.yaml"
    text = (FOLDER / "keyway.yaml").read_text("utf-8")
    template.write_text(text.replace("@TOKEN_SHA256@", token))
    given = {variable["name"]: variable.get("value") for variable in init["env"]}
    assert given.keys() == {"POD_NAME", "POD_NAMESPACE", "FROM", "TO"}
    target = tmp_path / f"{name}.yaml"
    env = {
        "PATH": os.environ["PATH"],
        "POD_NAME": name,
        "POD_NAMESPACE": NAMESPACE,
        "FROM": str(template),
        "TO": str(target),
    }
    subprocess.run(init["command"], env=env, check=True, timeout=20)
    assert target.stat().st_mode & 0o077 == 0
    return load(target)


def test_each_pod_is_a_node_of_its_own_name_and_address(tmp_path: Path) -> None:
    pods = [rendered(tmp_path, f"keyway-{number}") for number in range(3)]
    assert [of_pod.nodes.id for of_pod in pods] == ["keyway-0", "keyway-1", "keyway-2"]
    for config in pods:
        assert (
            config.listen.advertised_host
            == f"{config.nodes.id}.keyway.{NAMESPACE}.svc.cluster.local"
        )
        assert config.admin.tokens
    with pytest.raises(ConfigError, match="sha256"):
        rendered(tmp_path, "keyway-0", token="@TOKEN_SHA256@")  # nobody runs with a known token


def test_ports_and_probes_are_those_of_the_configuration(tmp_path: Path) -> None:
    config = rendered(tmp_path, "keyway-0")
    (container,) = pod()["containers"]
    ports = {opened["name"]: opened["containerPort"] for opened in container["ports"]}
    assert ports == {"bootstrap": config.listen.bootstrap_port, "admin": config.admin.port}
    for name in ("keyway", "keyway-bootstrap"):
        for port in one("Service", name)["spec"]["ports"]:
            assert ports[port["targetPort"]] == port["port"], "clients are told the inner ones"
    open_paths = {
        operation.path
        for operation in OPERATIONS
        if operation.method == "GET" and operation.role is None
    }
    probes = {key: container[key]["httpGet"] for key in container if key.endswith("Probe")}
    assert probes["readinessProbe"]["path"] == "/health/ready"
    assert probes["livenessProbe"]["path"] == probes["startupProbe"]["path"] == "/health/live"
    for probe in probes.values():
        assert probe["port"] == "admin"
        assert probe["path"] in open_paths, "a probe has no token"


def test_rest_is_for_nodes_and_for_namespaces_with_a_label(tmp_path: Path) -> None:
    config = rendered(tmp_path, "keyway-0")
    policy = one("NetworkPolicy")["spec"]
    assert policy["podSelector"]["matchLabels"] == LABELS
    clients, rest = policy["ingress"]
    (opened,) = clients["ports"]
    assert opened["port"] == config.listen.bootstrap_port < config.listen.port_base
    assert not opened["port"] <= config.admin.port <= opened["endPort"]
    assert [port["port"] for port in rest["ports"]] == [config.admin.port]
    nodes, others = rest["from"]
    assert nodes["podSelector"]["matchLabels"] == LABELS
    assert others["namespaceSelector"]["matchLabels"]


def test_the_command_is_one_that_the_image_takes() -> None:
    import typer.main

    (container,) = pod()["containers"]
    root = typer.main.get_command(app)
    with root.make_context("keyway", list(container["args"])) as context:
        name, command, rest = root.resolve_command(context, list(container["args"]))  # type: ignore[attr-defined]
        with command.make_context(name, rest, parent=context) as inner:
            paths = {mount["mountPath"] for mount in container["volumeMounts"]}
            assert str(inner.params["config"].parent) in paths


def test_pods_run_confined_and_have_the_time_to_hand_over() -> None:
    spec = pod()
    user = re.search(r"--uid (\d+)", (REPOSITORY / "Dockerfile").read_text("utf-8"))
    assert user is not None
    security = spec["securityContext"]
    assert security["runAsNonRoot"]
    assert security["runAsUser"] == security["fsGroup"] == int(user[1])
    assert security["seccompProfile"]["type"] == "RuntimeDefault"
    assert not spec["automountServiceAccountToken"]
    for container in (*spec["initContainers"], *spec["containers"]):
        confined = container["securityContext"]
        assert confined["readOnlyRootFilesystem"]
        assert not confined["allowPrivilegeEscalation"]
        assert confined["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]
        assert "cpu" not in container["resources"]["limits"], "a throttled node delays all"
    assert spec["terminationGracePeriodSeconds"] >= WORKER_STOP_S_MAX
