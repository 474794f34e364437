"""The configuration of workers: names and ports of their own, one Redis, one bootstrap port."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.config.file import Config, ConfigError
from gateway.node.worker_config import Worker, check

HERE = "unix:///redis.sock"


def config(**sections: Any) -> Config:
    return Config.model_validate(sections)


def test_each_worker_has_ports_and_a_name_of_its_own() -> None:
    workers = [Worker(number, 2, HERE).config(config()) for number in range(2)]
    assert [worker.nodes.id for worker in workers] == ["worker-0", "worker-1"]
    assert [worker.admin.port for worker in workers] == [9180, 9181]
    assert [worker.listen.port_base for worker in workers] == [9200, 10_200]
    for worker in workers:
        assert (worker.listen.bootstrap_port, worker.listen.bootstrap_shared) == (9192, True)
        assert worker.state.redis_url is not None
        assert worker.state.redis_url.get_secret_value() == HERE


def test_slots_take_their_ports_first() -> None:
    of_all = config(listen={"slots_per_broker": 3, "port_step": 100})
    bases = [Worker(number, 3, HERE).config(of_all).listen.port_base for number in range(3)]
    assert bases == [9200, 9500, 9800]


def test_a_configured_redis_and_name_are_kept() -> None:
    for state in ({"redis_url": "redis://elsewhere"}, {"redis_url_file": "/etc/redis-url"}):
        of_all = config(nodes={"id": "rack-7"}, state=state)
        worker = Worker(1, 2).config(of_all)
        assert worker.nodes.id == "rack-7-1"
        assert worker.state == of_all.state


def test_one_worker_serves_the_registry_view() -> None:
    of_all = config(registry_view={"clusters_file": "clusters.yaml", "cluster": "here"})
    views = [Worker(number, 2, HERE).config(of_all).registry_view.cluster for number in range(2)]
    assert views == ["here", None]


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"admin": {"port": 9190}}, "REST needs the ports 9190 to 9193, and listen.bootstrap_port"),
        ({"admin": {"port": 65_533}}, "REST would need the ports 65533 to 65536"),
        ({"listen": {"port_base": 64_000}}, "4 x 1000 ports from 64000 on"),
        ({"listen": {"slots_per_broker": 16}}, "64 x 1000 ports from 9200 on"),
        (
            {"nodes": {"id": "n" * 64}, "state": {"redis_url": "redis://elsewhere"}},
            "nodes.id is too long",
        ),
    ],
)
def test_what_does_not_fit_is_refused(sections: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check(config(**sections), 4)
    assert str(refused.value).startswith("--workers 4: ")
    assert said in str(refused.value)
