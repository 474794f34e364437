"""Checkpoints of Spark queries that would miss records on the other cluster."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from keyway.clusters.config import load
from offsets.checkpoints import translated
from offsets.client import ClusterClient
from offsets.core.checkpoint import Checkpoint
from offsets.core.switches import SwitchReport
from offsets.errors import CheckpointError
from offsets.state_topic import StateTopic
from tests.integration.offsets.conftest import Addresses
from tests.rig.offset_clusters import write_config

pytestmark = [pytest.mark.deep, pytest.mark.integration]


def test_no_checkpoint_moves_while_a_switch_is_unfinished(
    pair: Addresses, copied: Callable[[int], str], tmp_path: Path
) -> None:
    """Groups were refused; a query moved, and missed what the old target passed on later."""
    topic, other = copied(10), copied(10)
    config = load(write_config(tmp_path, {**pair, "C": "127.0.0.1:1"}))
    checkpoint = Checkpoint("{}", {(topic, 0): 7})
    order = SwitchReport("A", 2, "A", generation=1, target="C", rewind=False, done=True)
    through = SwitchReport("A", 2, "B", 1, "C", False, True, stopped=frozenset({topic}))
    assert translated(config, checkpoint, "B", "A").offsets == {(topic, 0): 7}
    with closing(StateTopic(ClusterClient(config.cluster("A")))) as told:
        try:
            told.write_told([order])
            with pytest.raises(CheckpointError, match="has not passed on yet"):
                translated(config, checkpoint, "B", "A")
            assert translated(config, checkpoint, "B", "A", force=True).offsets == {(topic, 0): 7}
            told.write_told([through])
            with pytest.raises(CheckpointError, match=f"topic {topic}"):
                translated(config, checkpoint, "B", "A")
            assert translated(config, Checkpoint("{}", {(other, 0): 7}), "B", "A").offsets
        finally:  # other tests of the module's clusters have nothing to do with it
            told.write_told([SwitchReport("A", 2, "A", 1, "C", rewind=True, done=True)])
