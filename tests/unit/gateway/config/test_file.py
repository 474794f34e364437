"""keyway.yaml: defaults, every kind of wrong field is named, no message holds a secret."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from dispatcher.core.model import EvictPolicy, JoinPolicy, PoisonPolicy, Policy
from gateway.config.file import Config, ConfigError, load
from gateway.config.groups import GroupSection

SECRET = "hunter2"


def write(folder: Path, text: str) -> Path:
    path = folder / "keyway.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def fault(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as refused:
        load(write(folder, text))
    message = str(refused.value)
    assert message.startswith(f"{folder / 'keyway.yaml'}: ")
    assert "\n" not in message
    return message.removeprefix(f"{folder / 'keyway.yaml'}: ")


def test_everything_has_a_default() -> None:
    config = load(None)
    assert config == Config()
    assert config.upstream.bootstrap_servers == "127.0.0.1:9092"
    assert config.state.redis_url is None
    group = config.group("any group at all")
    assert (group.auto_offset_reset, group.deliveries_max) == ("latest", 5)
    assert group.rejected is PoisonPolicy.DROP, "as Kafka: the client has decided"
    assert group.exhausted is PoisonPolicy.BLOCK, "nobody has decided"


def test_upstream_alone_is_enough() -> None:
    assert load(None, upstream="kafka:9").upstream.bootstrap_servers == "kafka:9"


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "upstream:\ngroups:\n"])
def test_a_file_that_says_nothing(tmp_path: Path, text: str) -> None:
    assert load(write(tmp_path, text)) == Config()
    changed = load(write(tmp_path, text), upstream="kafka:9")
    assert changed.upstream.bootstrap_servers == "kafka:9"


def test_the_option_wins_over_the_file_and_keeps_the_rest(tmp_path: Path) -> None:
    path = write(tmp_path, "upstream: {bootstrap_servers: 'a:1', request_timeout_ms: 7}")
    upstream = load(path, upstream="b:2").upstream
    assert (upstream.bootstrap_servers, upstream.request_timeout_ms) == ("b:2", 7)


def test_the_first_group_that_matches_wins(tmp_path: Path) -> None:
    text = """
groups:
  - {match: "pay-*", rejected: block, exhausted: drop, on_evict: ack, deliveries_max: 3}
  - {match: "pay-special", deliveries_max: 9}
  - {match: "*", deliveries_max: 2}
"""
    config = load(write(tmp_path, text))
    assert config.group("pay-special").deliveries_max == 3
    assert config.group("PAY-x").deliveries_max == 2, "names have a case"
    policy = config.group("pay-x").policy()
    assert (policy.rejected, policy.exhausted) == (PoisonPolicy.BLOCK, PoisonPolicy.DROP)
    assert policy.on_evict is EvictPolicy.ACK


def test_a_certificate_is_nobodys_identity_but_by_consent(tmp_path: Path) -> None:
    """Else a client of a plain listener, without any login, has the gateway's rights at Kafka."""
    refused = fault(tmp_path, "upstream: {tls: {cert_file: c}}")
    assert "clients_act_as_gateway: true" in refused
    for named in (
        "upstream: {tls: {cert_file: c, clients_act_as_gateway: true}}",
        "upstream: {sasl: {username: u, password: p}, tls: {cert_file: c}}",
        "upstream: {tls: {ca_file: c}}",
    ):
        assert load(write(tmp_path, named)).upstream.tls is not None


def test_what_is_parsed_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load(None).upstream.bootstrap_servers = "other"


FAULTS = [
    ("nonsense: 1", "nonsense: unknown field"),
    ("upstream: {bootstrap_server: x}", "upstream.bootstrap_server: unknown field"),
    ("upstream: 5", "upstream: "),
    ("upstream: {bootstrap_servers: [a, b]}", "upstream.bootstrap_servers: "),
    ("upstream: {sasl: {username: u}}", "upstream.sasl: one of password, "),
    ("upstream: {sasl: {username: u, password: p, password_file: f}}", "upstream.sasl: one of "),
    ("upstream: {sasl: {password: p}}", "upstream.sasl.username: "),
    (
        "upstream: {sasl: {mechanism: GSSAPI, username: u, password: p}}",
        "upstream.sasl.mechanism: ",
    ),
    ("upstream: {tls: {verify_hostname: perhaps}}", "upstream.tls.verify_hostname: "),
    (
        "upstream: {tls: {key_file: k}}",
        "upstream.tls: key_file and its password need a cert_file",
    ),
    ("upstream: {tls: {cert_file: c}}", "upstream: tls.cert_file needs sasl: "),
    ("upstream: {tls: {ca_file: c, clients_act_as_gateway: true}}", "upstream: tls.clients_act_"),
    (
        "upstream: {sasl: {username: u, password: p},"
        " tls: {cert_file: c, clients_act_as_gateway: true}}",
        "upstream: tls.clients_act_as_gateway needs tls.cert_file, and no sasl",
    ),
    ("upstream: {request_timeout_ms: 0}", "upstream.request_timeout_ms: "),
    ("listen: {bootstrap_port: 65536}", "listen.bootstrap_port: "),
    ("listen: {port_base: 0}", "listen.port_base: "),
    ("listen: {bootstrap_port: web}", "listen.bootstrap_port: "),
    ("listen: {frame_bytes_max: 1}", "listen.frame_bytes_max: "),
    ("listen: {host: 0.0.0.0}", "listen: advertised_host is needed"),
    ("listen: {host: '::'}", "listen: advertised_host is needed"),
    ("listen: {host: 'a', advertised_host: '::'}", "listen: advertised_host is"),
    ("admin: {port: -1}", "admin.port: "),
    ("state: {redis_url: u, redis_url_file: f}", "state: either redis_url or redis_url_file"),
    (
        "admin: {tls: {cert_file: c, key_password: p, key_password_file: f}}",
        "admin.tls: either key_password or key_password_file",
    ),
    ("state: {commit_interval_ms: 0}", "state.commit_interval_ms: "),
    ("state: {redis: x}", "state.redis: unknown field"),
    ("groups: {match: x}", "groups: "),
    ("groups: [{match: x}, {poisson: drop}]", "groups.1.poisson: unknown field"),
    ("groups: [{rejected: explode}]", "groups.0.rejected: "),
    ("groups: [{exhausted: explode}]", "groups.0.exhausted: "),
    ("groups: [{auto_offset_reset: newest}]", "groups.0.auto_offset_reset: "),
    ("groups: [{auto_offset_reset: 'by_duration:P'}]", "groups.0.auto_offset_reset: "),
    ("groups: [{auto_offset_reset: 'by_duration:PT'}]", "groups.0.auto_offset_reset: "),
    ("groups: [{span_max: 0}]", "groups.0.span_max: "),
    ("groups: [{span_max: 1.5}]", "groups.0.span_max: "),
    ("groups: [{lock_duration_ms: 99}]", "groups.0.lock_duration_ms: "),
    ("groups: [{filters: [{client_id: a}]}]", "groups.0.filters.0.keys: "),
    ("groups: [{filters: [{client_id: a, keys: []}]}]", "groups.0.filters.0.keys: "),
    ("groups: [{rejected: dead_letter}]", "groups.0: rejected: dead_letter needs"),
    ("groups: [{exhausted: dead_letter}]", "groups.0: exhausted: dead_letter needs"),
    ("groups: [{exhausted: dead_letter, dead_letter_topic: ' '}]", "groups.0: exhausted"),
    ("groups: [{session_timeout_ms: 5000}]", "groups.0: "),
    ("5: 6", "5"),
    ("- a list", "a mapping is expected at the top"),
    ("just text", "a mapping is expected at the top"),
    ("false", "a mapping is expected at the top"),
    ("[]", "a mapping is expected at the top"),
]


@pytest.mark.parametrize(("text", "begins"), FAULTS, ids=[text for text, _ in FAULTS])
def test_a_wrong_field_is_named(tmp_path: Path, text: str, begins: str) -> None:
    assert fault(tmp_path, text).startswith(begins)


@pytest.mark.parametrize("value", ["block", "drop", "dead_letter", "explode", "[a]", "null"])
def test_the_one_poison_policy_of_before_is_refused_with_its_successors(
    tmp_path: Path, value: str
) -> None:
    said = fault(tmp_path, f"groups: [{{match: x}}, {{poison: {value}, dead_letter_topic: d}}]")
    same = value if value in ("block", "drop", "dead_letter") else "block"
    assert said == (
        f"groups.1: poison is not an option any more: write `rejected: {same}` (a member rejects"
        f" the record) and `exhausted: {same}` (its deliveries are used up) instead"
    )
    written = f"groups: [{{rejected: {same}, exhausted: {same}, dead_letter_topic: d}}]"
    assert load(write(tmp_path, written)).group("g").exhausted is PoisonPolicy(same)


def test_several_faults_are_counted(tmp_path: Path) -> None:
    assert fault(tmp_path, "a: 1\nb: 2\nc: 3\n").endswith("(and 2 more)")


@pytest.mark.parametrize("text", ["PT5S", "P1D", "P1DT12H", "PT1H30M"])
def test_starting_a_while_ago(tmp_path: Path, text: str) -> None:
    reset = f"by_duration:{text}"
    path = write(tmp_path, f"groups: [{{auto_offset_reset: '{reset}'}}]")
    assert load(path).group("g").auto_offset_reset == reset


@pytest.mark.parametrize(
    "text",
    [
        "upstream: {sasl: {username: u, password: [hunter2]}}",
        "upstream: {sasl: {username: u, password: 5, passwort: hunter2}}",
        "upstream: {sasl: {mechanism: hunter2, username: u, password: hunter2}}",
        "upstream: {sasl: hunter2}",
        "upstream: {bootstrap_servers: 'u:hunter2@h:9092'}",
        "upstream: {bootstrap_servers: 'good:9092,u:hunter2,x@h:9092'}",
        "upstream: {bootstrap_servers: [u, hunter2]}",
        "upstream: {tls: {key_password: hunter2}}",
        "state: {redis_url: [redis://u:hunter2@h]}",
        'upstream: {sasl: {username: u, password: "hunter2}}',
        "upstream: {sasl: {username: u, password: *hunter2}}",
        "upstream: {sasl: {username: u, password: !hunter2 x}}",
        "password: hunter2: x",
        "password: %hunter2",
        'password: "\\hunter2"',
        "upstream: &a {b: hunter2, <<: hunter2}",
    ],
)
def test_no_message_holds_a_secret(tmp_path: Path, text: str) -> None:
    assert SECRET not in fault(tmp_path, text)


def test_secrets_do_not_show_in_the_objects(tmp_path: Path) -> None:
    text = (
        "upstream:\n"
        "  sasl: {username: u, password: hunter2}\n"
        "  tls: {cert_file: c, key_password: hunter2}\n"
        "state: {redis_url: 'redis://u:hunter2@h'}\n"
    )
    config = load(write(tmp_path, text))
    assert SECRET not in repr(config) + str(config) + config.model_dump_json()
    assert config.upstream.sasl is not None
    assert config.upstream.sasl.secret() == SECRET


def test_where_a_file_is_no_yaml(tmp_path: Path) -> None:
    assert fault(tmp_path, "a: b\nc: 'd") == "not valid YAML at line 2, column 6"
    assert fault(tmp_path, "[" * 50_000).startswith("not valid YAML")
    path = tmp_path / "keyway.yaml"
    path.write_bytes(b"a: \xff")
    with pytest.raises(ConfigError, match="not UTF-8 at byte 3"):
        load(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="Is a directory"):
        load(tmp_path)


def test_a_policy_has_every_field_of_its_section() -> None:
    """No field of the dispatcher's policy has its default where the section says otherwise."""
    section = GroupSection(
        span_max=64,
        window_records=7,
        in_flight_per_member_max=3,
        prefetch_per_key=2,
        lock_duration_ms=1_234,
        deliveries_max=9,
        backoff_base_ms=11,
        backoff_max_ms=22,
        join_policy=JoinPolicy.LAST_SENT,
        on_evict=EvictPolicy.ACK,
        bounded_load=1.5,
        disconnect_grace_ms=44,
        reliable=False,
    )
    policy = section.policy()
    for field in dataclasses.fields(Policy):
        assert getattr(policy, field.name) == getattr(section, field.name), field.name


TOKEN = "{name: ann, role: viewer, sha256: " + "0a" * 32 + "}"


def test_tokens(tmp_path: Path) -> None:
    (token,) = load(write(tmp_path, f"admin: {{host: 0.0.0.0, tokens: [{TOKEN}]}}")).admin.tokens
    assert (token.name, token.role, token.groups, token.keys) == ("ann", "viewer", ("*",), None)
    assert "0a0a" not in repr(token)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.1.2.3", "gateway.example"])
def test_beyond_loopback_rest_needs_tokens(tmp_path: Path, host: str) -> None:
    message = fault(tmp_path, f"admin: {{host: '{host}'}}")
    assert message.startswith("admin: tokens is needed")
    assert "keyway token" in message
    for near in ("127.0.0.1", "127.9.9.9", "::1", "localhost"):
        assert load(write(tmp_path, f"admin: {{host: '{near}'}}")).admin.tokens == ()


@pytest.mark.parametrize(
    ("tokens", "says"),
    [
        ("[{name: a b, role: viewer, sha256: 00}]", "admin.tokens.0.name"),
        ("[{name: a, role: root, sha256: 00}]", "admin.tokens.0.role"),
        ("[{name: a, role: viewer, sha256: hunter2}]", "admin.tokens.0.sha256: 64 hex digits"),
        ("[{name: a, role: viewer}]", "admin.tokens.0.sha256: is missing"),
        (f"[{TOKEN[:-1]}, groups: []}}]", "admin.tokens.0.groups: must not be empty"),
        (f"[{TOKEN[:-1]}, groups: ['']}}]", "admin.tokens.0.groups.0: must not be empty"),
        (f"[{TOKEN}, {TOKEN}]", "two have the same name"),
        (f"[{TOKEN}, {TOKEN.replace('ann', 'bob')}]", "two have the same sha256"),
        (f"[{', '.join([TOKEN] * 101)}]", "admin.tokens"),
    ],
)
def test_tokens_that_are_refused(tmp_path: Path, tokens: str, says: str) -> None:
    message = fault(tmp_path, f"admin: {{tokens: {tokens}}}")
    assert says in message
    assert SECRET not in message
