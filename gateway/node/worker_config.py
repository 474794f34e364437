"""The configuration of one of several workers: nodes on one machine, made from one keyway.yaml.

All workers share the bootstrap port, and the system spreads first contacts over them. Each has the
ports of its virtual brokers, its REST port and its name for itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import SecretStr, ValidationError

from gateway.config.file import Config, ConfigError
from gateway.config.listen import ListenerSection, ListenSection
from gateway.config.state import NodesSection, RegistryViewSection

_PORT_MAX = 65_535
_NAME = "worker"  # without nodes.id


@dataclass(frozen=True, slots=True)
class Worker:
    """One of `count`; `redis_url`: of the Redis that the first process has started, if it has."""

    number: int
    count: int
    redis_url: str | None = None

    def config(self, config: Config) -> Config:
        """Raises ConfigError: not so many workers fit into the ports."""
        listen, number = config.listen, self.number
        step = listen.slots_per_broker * listen.port_step
        check(config, self.count)
        state = config.state
        if state.embedded:
            redis_url = SecretStr(self.redis_url or "")
            state = state.model_copy(update={"redis_url": redis_url})
        return config.model_copy(
            update={
                "listen": _with_ports_of_its_own(listen, number * step),
                "admin": config.admin.model_copy(update={"port": config.admin.port + number}),
                "state": state,
                "nodes": config.nodes.model_copy(update={"id": name(config, number)}),
                # It has a port of its own: one of them serves it for all.
                "registry_view": RegistryViewSection() if number else config.registry_view,
            }
        )


def name(config: Config, number: int) -> str:
    """The node id of a worker."""
    return f"{config.nodes.id or _NAME}-{number}"


def check(config: Config, count: int) -> None:
    """Raises ConfigError if the ports of so many workers overlap or are none, or a name is none."""
    listen = config.listen
    for listener in listen.all():
        if listener.sni is not None:
            raise ConfigError(
                f"--workers {count}: listener {listener.name!r} has sni, and its one port cannot"
                " tell the workers apart: give each worker ports (port_base), or run nodes"
            )
    for listener in listen.all():
        _check_ports(listener, config, count)
    try:
        NodesSection(id=name(config, count - 1))
    except ValidationError as error:
        raise ConfigError(f"--workers {count}: nodes.id is too long") from error


def _check_ports(listener: ListenerSection, config: Config, count: int) -> None:
    """Raises ConfigError."""
    listen, admin = config.listen, config.admin
    last_admin = admin.port + count - 1
    blocks = count * listen.slots_per_broker
    last_block = listener.port_base + (blocks - 1) * listen.port_step
    if last_admin > _PORT_MAX or last_block >= _PORT_MAX:
        raise ConfigError(
            f"--workers {count}: REST would need the ports {admin.port} to {last_admin}, and the"
            f" virtual brokers {blocks} x {listen.port_step} ports from {listener.port_base} on:"
            " choose smaller listen.port_base, listen.port_step or admin.port"
        )
    if admin.port <= listener.bootstrap_port <= last_admin:
        raise ConfigError(
            f"--workers {count}: REST needs the ports {admin.port} to {last_admin}, and"
            f" listen.bootstrap_port is {listener.bootstrap_port}: change one of them"
        )


def _with_ports_of_its_own(listen: ListenSection, further: int) -> ListenSection:
    listeners = tuple(
        listener.model_copy(update={"port_base": listener.port_base + further})
        for listener in listen.listeners
    )
    ports = {"port_base": listen.port_base + further, "listeners": listeners}
    return listen.model_copy(update={**ports, "bootstrap_shared": True})
