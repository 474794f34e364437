"""The groups that follow."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.config import ClustersConfig, ConfigError
from offsets.client import ClusterClient
from offsets.service import followed_group


def config(**sections: Any) -> ClustersConfig:
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


def test_groups_are_named_before_their_offsets_are_moved() -> None:
    found = config()
    with pytest.raises(ConfigError, match="groups: is missing: which groups follow"):
        followed_group(found, ClusterClient(found.clusters[0]))
    with pytest.raises(ValueError, match="include"):
        config(groups={"exclude": ["test-*"]})


def test_own_groups_never_follow() -> None:
    found = config(groups={"include": ["*"], "exclude": ["test-*"]})
    wanted = followed_group(found, ClusterClient(found.clusters[0]))
    names = ("billing", "test-1", "keyway-link-ams-level-1", "spark-kafka-source-1", "__amazon")
    assert [it for it in names if wanted(it)] == ["billing"]
