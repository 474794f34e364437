"""docker-compose.yml and the Dockerfile, as far as they can be checked without a Docker engine."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from gateway.cli.main import app
from gateway.config.file import Config, load

ROOT = Path(__file__).resolve().parent.parent
PINNED = re.compile(r"[a-z0-9/_-]+:\d+\.\d+\.\d+(-[a-z0-9]+)*")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return content


@pytest.fixture(scope="module")
def config() -> Config:
    return load(ROOT / "docker" / "keyway.yaml")


@pytest.fixture(scope="module")
def dockerfile() -> str:
    return (ROOT / "Dockerfile").read_text()


def stages_of(dockerfile: str) -> dict[str, tuple[str, str]]:
    """By name: what a stage begins from, and its lines."""
    _, *parts = re.split(r"^FROM (\S+) AS (\S+)$", dockerfile, flags=re.MULTILINE)
    return {
        name: (base, text)
        for base, name, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    }


def built_for(target: str, stages: dict[str, tuple[str, str]]) -> str:
    """The lines of all stages that `target` needs."""
    if target not in stages:
        return ""
    base, text = stages[target]
    needed = [base, *re.findall(r"--from=(\S+)", text)]
    return text + "".join(built_for(image, stages) for image in needed)


def test_the_services_of_the_issue_are_there(compose: dict[str, Any]) -> None:
    assert {"kafka", "redis", "gateway", "spark"} <= compose["services"].keys()


def test_images_are_pinned(compose: dict[str, Any], dockerfile: str) -> None:
    images = [one["image"] for one in compose["services"].values() if "image" in one]
    stages = stages_of(dockerfile)
    images += [base for base, _ in stages.values() if base not in stages]
    assert len(images) == 5
    assert [image for image in images if not PINNED.fullmatch(image)] == []


def test_builds_are_stages_of_the_dockerfile(compose: dict[str, Any], dockerfile: str) -> None:
    stages = stages_of(dockerfile)
    built = [one["build"] for one in compose["services"].values() if "build" in one]
    assert len(built) == 3
    assert all(build["target"] in stages and build["context"] == "." for build in built)


def test_the_gateways_image_is_built_without_an_extra(dockerfile: str) -> None:
    stages = stages_of(dockerfile)
    assert "install --no-cache-dir /own/*.whl" in built_for("gateway", stages)
    assert "[" not in re.sub(r"CMD \[.*|ENTRYPOINT \[.*", "", built_for("gateway", stages))
    assert '"${own}[demo]"' in built_for("spark", stages)


def test_keyways_own_wheel_is_built_once(dockerfile: str) -> None:
    assert len(re.findall(r"pip wheel .* \.$", dockerfile, re.MULTILINE)) == 1


def test_what_the_image_keeps_is_the_nodes(dockerfile: str) -> None:
    home = re.search(r"--home-dir (\S+)", dockerfile)
    assert home is not None
    _, text = stages_of(dockerfile)["gateway"]
    assert f"WORKDIR {home.group(1)}\n" in text, "a relative state.directory is below it"
    assert f"VOLUME {home.group(1)}\n" in text


def test_python_of_the_images_is_one_we_support(dockerfile: str) -> None:
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    least = tuple(int(part) for part in required.removeprefix(">=").split("."))
    for version in re.findall(r"^FROM python:([\d.]+)", dockerfile, re.MULTILINE):
        assert tuple(int(part) for part in version.split(".")) >= least


def test_everything_copied_exists_and_is_not_ignored(dockerfile: str) -> None:
    allowed = set((ROOT / ".dockerignore").read_text().splitlines())
    copied = [
        name
        for line in re.findall(r"^COPY (?!--from)(.+)$", dockerfile, re.MULTILINE)
        for name in line.split()[:-1]
    ]
    assert {"gateway", "dispatcher", "keyway", "offsets", "schema_dist", "spark"} <= set(copied)
    for name in copied:
        assert (ROOT / name).exists(), name
        assert f"!{name}" in allowed, name


def test_gateway_listens_where_compose_publishes(
    compose: dict[str, Any], config: Config, dockerfile: str
) -> None:
    node_id = int(compose["services"]["kafka"]["environment"]["KAFKA_NODE_ID"])
    ports = {
        config.listen.bootstrap_port,
        config.listen.port_base + node_id,
        config.admin.port,
    }
    published = [entry.split(":") for entry in compose["services"]["gateway"]["ports"]]
    assert {int(inside) for _, _, inside in published} == ports
    # The advertised port is the inner one: a client outside must find it under the same number.
    assert all(outside == inside for _, outside, inside in published)
    assert {address for address, _, _ in published} == {config.listen.advertised_host}
    exposed = re.search(r"^EXPOSE (.+)$", dockerfile, re.MULTILINE)
    assert exposed is not None
    assert {int(port) for port in exposed.group(1).split()} == ports
    check = compose["services"]["gateway"]["healthcheck"]["test"][-1]
    assert f"http://127.0.0.1:{config.admin.port}/health/ready" in check
    assert config.listen.host == config.admin.host == "0.0.0.0"


def test_config_points_at_the_services(compose: dict[str, Any], config: Config) -> None:
    kafka = compose["services"]["kafka"]["environment"]
    assert kafka["KAFKA_ADVERTISED_LISTENERS"] == f"PLAINTEXT://{config.upstream.bootstrap_servers}"
    assert config.upstream.bootstrap_servers.split(":")[0] in compose["services"]
    assert config.state.redis_url is not None
    assert config.state.redis_url.get_secret_value() == "redis://redis:6379/0"
    assert "ports" not in compose["services"]["kafka"], "clients go through the gateway"


def test_gateway_command_is_one_the_cli_takes(compose: dict[str, Any], dockerfile: str) -> None:
    gateway = compose["services"]["gateway"]
    words = gateway["command"]
    assert f"CMD {words}".replace("'", '"') in dockerfile
    mounted = {entry.split(":")[1]: entry.split(":")[0] for entry in gateway["volumes"]}
    assert (ROOT / mounted[words[-1]]).is_file()
    root = typer.main.get_command(app)
    with root.make_context("keyway", list(words)) as context:
        name, command, rest = root.resolve_command(context, list(words))  # type: ignore[attr-defined]
        with command.make_context(name, rest, parent=context) as inner:
            assert inner.params["config"] == Path(words[-1])


@pytest.mark.parametrize("job", ["flights", "spark"])
def test_jobs_go_through_the_gateway(compose: dict[str, Any], config: Config, job: str) -> None:
    service = compose["services"][job]
    flag, module, address, *_ = service["command"]
    assert flag == "-m"
    assert importlib.util.find_spec(module) is not None
    assert address == f"{config.listen.advertised_host}:{config.listen.bootstrap_port}"
    assert service["network_mode"] == "service:gateway"
    assert service["depends_on"]["gateway"]["condition"] == "service_healthy"


def test_dependencies_have_health_checks(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for service in services.values():
        for name in service.get("depends_on", {}):
            assert "healthcheck" in services[name]
