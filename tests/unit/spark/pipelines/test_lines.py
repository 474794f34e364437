"""YAML with lines: the nearest line, and faults that PyYAML would let pass."""

from __future__ import annotations

import pytest

from spark.pipelines.lines import YamlFault, read_yaml

TEXT = """\
name: p
steps:
  - mask:
      paths: [a,
              b]
  - drop: {paths: [c]}
"""


@pytest.mark.parametrize(
    ("location", "line"),
    [
        ((), 1),
        (("name",), 1),
        (("steps",), 2),
        (("steps", 0), 3),
        (("steps", 0, "mask", "paths", 1), 5),
        (("steps", 1, "drop", "paths", 0), 6),
        (("steps", 0, "mask", "hmac", "key_env"), 3),
        (("steps", 7), 2),
        (("nothing",), 1),
    ],
)
def test_line_of_a_value_or_the_nearest_around_it(
    location: tuple[str | int, ...], line: int
) -> None:
    assert read_yaml(TEXT).line(location) == line


def test_values_are_those_of_safe_yaml() -> None:
    value = {"a": [1, 1.5, True, None, "x"], "b": {"c": "2013-01-01"}}
    assert read_yaml("a: [1, 1.5, true, null, x]\nb: {c: '2013-01-01'}").value == value
    assert read_yaml("").value is None
    assert read_yaml("a: &x {b: 1}\nc: *x").value == {"a": {"b": 1}, "c": {"b": 1}}


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("a: 1\nb: [", 2, "not valid YAML"),
        ("a: 1\nb:\n  c: 2\n  c: 3", 4, "c is given twice"),
        ("a: !!python/object:os.system x", 1, "not valid YAML"),
        ("a: 1\n--- \nb: 2", 2, "not valid YAML"),
        ("[" * 5_000, 1, "nested too deeply"),
        ("a: \0", 1, "not valid YAML"),
    ],
)
def test_faults_name_the_line_and_show_nothing(text: str, line: int, reason: str) -> None:
    with pytest.raises(YamlFault, match=reason) as fault:
        read_yaml(text)
    assert fault.value.line == line


def test_a_fault_does_not_show_a_password() -> None:
    with pytest.raises(YamlFault) as fault:
        read_yaml("password: 'SECRET\n")
    assert "SECRET" not in str(fault.value)
