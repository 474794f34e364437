"""The source's only broker is killed and comes back without the end of a log, as after a loss of
power, and producers fill it up before the link looks again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.embedded.kafka import KafkaCluster
from spark.links.distribute import LinkRun
from spark.links.plan import Plan
from spark.streaming.orders import Partition
from spark.streaming.produce import copying
from tests.rig.kafka import QUICK_TURNS
from tests.rig.link_by_hand import A, B, C, LinkByHand
from tests.rig.lost_tails import lose_tail_of

pytestmark = [pytest.mark.deep, pytest.mark.integration]

COPIED, KEPT, END = 10, 7, 16


def begun(run: LinkRun) -> tuple[dict[Partition, int], Plan]:
    return run._starts(run._survey())


def test_a_log_that_was_cut_and_has_grown_again(tmp_path: Path) -> None:
    with KafkaCluster(1, share_groups=False, properties=QUICK_TURNS) as kafka:
        link = LinkByHand(kafka.bootstrap_servers, tmp_path, "run")
        grown, kept = (link.name(A, topic) for topic in ("grown", "kept"))
        for topic in ("grown", "kept"):
            link.create(topic, A, B, C)
            for at in range(COPIED):
                link.send(topic, [b"old-%d" % at])
        run = link.process(B)
        starts, plan = begun(run)
        assert starts == {(grown, 0): 0, (kept, 0): 0}
        ends = dict.fromkeys(starts, COPIED)
        assert run._epochs.fit(link.source, starts, ends)
        writing = run._writing(plan, ends)
        for topic in ("grown", "kept"):
            rows = link.rows(topic, [b"old-%d" % at for at in range(COPIED)], 0)
            assert len(list(copying(writing)([rows]))) == 1
        places = [(link.name(B, topic), 0) for topic in ("grown", "kept")]
        found = link.side(B).positions(run._link.group, places)
        assert [at.offset for at in found.values()] == [COPIED, COPIED]
        assert all(at.epoch >= 0 for at in found.values()), "committed in the transaction"
        lose_tail_of(kafka, grown, KEPT)
        for topic in ("grown", "kept"):
            for at in range(COPIED, END + COPIED - KEPT):
                link.send(topic, [b"new-%d" % at])
        assert link.source.log_ends(starts)[grown, 0] == END, "beyond the link's position"
        for place, whole in (((grown, 0), False), ((kept, 0), True)):
            assert run._epochs.fit(link.source, {place: COPIED}, {place: END}) == whole
        run = link.process(B)
        starts, plan = begun(run)
        assert starts == {(kept, 0): COPIED}
        assert "the log was cut" in plan.stopped[grown]
        assert run.report.topics()[grown].partitions[0].beyond == COPIED
