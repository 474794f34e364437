"""Finding Java and the jars, without the network."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.embedded import jars
from gateway.embedded.kafka_jars import JARS
from gateway.embedded.process import SetupError


@pytest.mark.parametrize(
    ("said", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ("bash: java: nonsense", None),
    ],
)
def test_java_major(said: str, major: int | None) -> None:
    assert jars.java_major(said) == major


def fake_java(folder: Path, said: str) -> Path:
    command = folder / "bin" / "java"
    command.parent.mkdir()
    command.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    command.chmod(0o755)
    return command


def test_java_home_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    command = fake_java(tmp_path, 'openjdk version "23.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert jars.java() == str(command)


def test_old_java_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path, 'openjdk version "11.0.2"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SetupError, match="is Java 11: install a Java runtime >= 17") as raised:
        jars.java()
    assert "\n" not in str(raised.value)


def test_a_java_that_says_no_text_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_java(tmp_path, "x").write_bytes(b"#!/bin/sh\nprintf '\\377' >&2\n")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SetupError, match="is Java of an unknown version: install"):
        jars.java()


def test_missing_java_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match="no java on PATH and no JAVA_HOME: install"):
        jars.java()


def test_own_folder_of_jars_is_taken_as_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "kafka_2.13-4.3.1.jar").touch()
    monkeypatch.setenv("KEYWAY_KAFKA_LIBS", str(tmp_path))
    assert jars.kafka_libs() == tmp_path
    assert jars.kafka_classpath() == f"{tmp_path}/*"


def test_the_listed_jars_are_those_of_the_version_and_all_there() -> None:
    assert f"org.apache.kafka:kafka_2.13:{jars.KAFKA_VERSION}" in JARS
    of_kafka = [jar for jar in JARS if jar.startswith("org.apache.kafka:")]
    assert all(jar.endswith(f":{jars.KAFKA_VERSION}") for jar in of_kafka)
    there = {path.name for path in jars.kafka_libs().glob("*.jar")}
    assert there == {"-".join(jar.split(":")[1:]) + ".jar" for jar in JARS}


def test_modules_with_what_they_depend_on_are_not_looked_for_among_those_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    caches = tmp_path / "caches"
    command = fake_java(tmp_path, "")
    command.write_text(
        "#!/bin/sh\n"
        '[ "$1" = -version ] && { echo \'openjdk version "21"\' >&2; exit; }\n'
        f'[ "$3" = -cache ] && echo "$4" >> {caches}\n'
        f"mkdir {tmp_path}/listed.part {tmp_path}/whole.part\n"
        f"touch {tmp_path}/listed.part/a.jar {tmp_path}/whole.part/a.jar\n"
    )
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    jars.fetched(tmp_path / "listed", "<ivy/>", first="a.jar", failed="{log}", poms=False)
    jars.fetched(tmp_path / "whole", "<ivy/>", first="a.jar", failed="{log}")
    listed, whole = caches.read_text().splitlines()
    assert listed != whole
