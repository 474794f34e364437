"""The findings of `keyway doctor` about other nodes: all is well, a warning, or a fault."""

from __future__ import annotations

from dataclasses import replace

from gateway.node.nodes_diagnosis import OtherNode, Ours, of_nodes
from tests.unit.gateway.node.test_diagnosis import marks

AGREED = {"upstream cluster": "c", "listen.slots_per_broker": "1"}
OURS = Ours("a", AGREED, "digest", 0.1)
B = OtherNode("b", AGREED, "digest", -0.1, "10.0.0.2:9180")


def test_nodes_that_fit() -> None:
    findings = list(of_nodes(OURS, [B, replace(B, id="c")]))
    assert marks(findings) == [
        ("nodes", "ok"),
        ("settings of nodes", "ok"),
        ("clocks of nodes", "ok"),
        ("addresses of nodes", "ok"),
    ]
    assert findings[0].found == "b, c live in this Redis, too"
    assert findings[2].found == "at most 0.2 s apart"


def test_a_node_without_others_is_told_where_they_might_be() -> None:
    (finding,) = of_nodes(OURS, [])
    assert finding.status.value == "ok"
    assert "state.redis_url" in finding.found


def test_what_must_be_alike_and_is_not_is_a_fault() -> None:
    other = replace(B, agreed={**AGREED, "upstream cluster": "d"})
    findings = list(of_nodes(OURS, [other]))
    assert marks(findings)[1] == ("settings of nodes", "fault")
    assert "node b has another upstream cluster: d, here c" in findings[1].found
    unknown = replace(OURS, agreed={"listen.slots_per_broker": "1"})  # upstream is silent
    assert marks(of_nodes(unknown, [other]))[1] == ("settings of nodes", "ok")


def test_other_settings_of_groups_are_a_warning() -> None:
    findings = list(of_nodes(OURS, [replace(B, settings="another")]))
    assert marks(findings)[1] == ("settings of nodes", "warning")
    assert findings[1].found == "nodes with other settings of groups: b"


def test_clocks_that_are_apart() -> None:
    findings = list(of_nodes(OURS, [replace(B, clock_off_s=-2.0), replace(B, id="c")]))
    assert marks(findings)[2] == ("clocks of nodes", "warning")
    assert findings[2].found == "the clock of node b and that of this machine are 2.1 s apart"
    of_before = replace(B, clock_off_s=None)  # a node that does not say it
    assert "clocks of nodes" not in [check for check, _ in marks(of_nodes(OURS, [of_before]))]


def test_addresses_that_do_not_answer() -> None:
    other = replace(B, rest_silence="refused", closed={"10.0.0.2:9201": "no answer"})
    findings = list(of_nodes(OURS, [other]))
    assert marks(findings)[3:] == [("addresses of nodes", "warning")] * 2
    assert findings[3].found == "REST of node b at 10.0.0.2:9180: refused"
    assert "10.0.0.2:9201 of node b" in findings[4].found
