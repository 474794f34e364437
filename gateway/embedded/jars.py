"""Java, and Kafka's jars: found on this machine, or fetched once through the Ivy that pyspark
brings along.

The jars live in build/kafka/libs (or KEYWAY_KAFKA_LIBS). They are fetched into a sibling folder
that is renamed when it is whole, so that a stopped download is never taken for a finished one; a
file lock makes concurrent callers wait.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from gateway.embedded.kafka_jars import JARS
from gateway.embedded.process import SetupError

KAFKA_VERSION = "4.3.1"
JAVA_MIN = 17  # the need of Kafka 4 brokers
JAVA_MEND = f"install a Java runtime >= {JAVA_MIN} (Debian: apt install openjdk-17-jre-headless)"
DOWNLOAD_S_MAX = 300.0
_DONE = ".complete"

# kafka-tools brings the perf and console tools (which need nothing of Connect, half of the
# download); log4j-slf4j-impl makes the broker's own log readable.
_IVY = """<ivy-module version="2.0">
  <info organisation="keyway" module="kafka-libs"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{version}" conf="default"/>
    <dependency org="org.apache.kafka" name="kafka-tools" rev="{version}" conf="default">
      <exclude org="org.apache.kafka" module="connect-runtime"/>
    </dependency>
    <dependency org="org.apache.logging.log4j" name="log4j-slf4j-impl" rev="2.25.4" conf="default"/>
  </dependencies>
</ivy-module>
"""


_LISTED = """<ivy-module version="2.0">
  <info organisation="keyway" module="kafka-libs"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{rows}
  </dependencies>
</ivy-module>
"""
_ROW = '    <dependency org="{}" name="{}" rev="{}" conf="default->default" transitive="false"/>'


_NO_POMS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""


def build_dir() -> Path:
    """Where downloads and generated files go: `build` of a checkout, else ~/.cache/keyway."""
    root = Path(__file__).resolve().parents[2]
    if (root / "pyproject.toml").exists():
        return root / "build"
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "keyway"


def java() -> str:
    """The java command: JAVA_HOME's, else the one on PATH. Raises SetupError if there is none, or
    it is too old.
    """
    home = os.environ.get("JAVA_HOME", "")
    in_home = Path(home, "bin", "java")
    command = str(in_home) if home and in_home.exists() else shutil.which("java")
    if command is None:
        raise SetupError(f"no java on PATH and no JAVA_HOME: {JAVA_MEND}")
    _require_version(command)
    return command


@cache  # of those that are new enough
def _require_version(command: str) -> None:
    try:
        said = subprocess.run([command, "-version"], capture_output=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"{command} does not run ({error}): {JAVA_MEND}") from error
    version = java_major((said.stderr + said.stdout).decode("utf-8", "replace"))
    if version is None or version < JAVA_MIN:
        raise SetupError(f"{command} is Java {version or 'of an unknown version'}: {JAVA_MEND}")


def java_major(said: str) -> int | None:
    """The major version in the text of `java -version` (1.8.0_292 is 8); None if there is none in
    it.
    """
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found.group(1)) if found else None


def kafka_libs(version: str = KAFKA_VERSION) -> Path:
    """The folder with Kafka's jars, fetched on first use. Raises SetupError if Java or the download
    fails.

    KEYWAY_KAFKA_LIBS stands for the usual version alone.
    """
    usual = version == KAFKA_VERSION
    ivy = _usual_ivy() if usual else _IVY.format(version=version)
    override = os.environ.get("KEYWAY_KAFKA_LIBS") if usual else None
    folder = build_dir() / ("kafka" if usual else f"kafka-{version}")
    libs = Path(override) if override else folder / "libs"
    if override and not _complete(libs, ivy) and any(libs.glob("kafka_2.13-*.jar")):
        return libs  # the caller's own folder of jars
    return fetched(
        libs,
        ivy,
        first=f"kafka_2.13-{version}.jar",
        failed="Kafka's jars could not be fetched from Maven Central (see {log}): check the"
        " network, or point KEYWAY_KAFKA_LIBS at a folder that has them",
        poms=not usual,
    )


def _usual_ivy() -> str:
    return _LISTED.format(rows="\n".join(_ROW.format(*jar.split(":")) for jar in JARS))


def listed(version: str) -> list[str]:
    """The rows of kafka_jars.py for another version. Raises SetupError as `kafka_libs`."""
    names = {jar.name for jar in kafka_libs(version).glob("*.jar")}
    found = []
    for jar in _ivy_cache(poms=True).glob("*/*/*s/*.jar"):  # organisation/name/jars or bundles/
        organisation, name = jar.parts[-4:-2]
        if jar.name in names:
            found.append(f"{organisation}:{name}:{jar.stem.removeprefix(f'{name}-')}")
    return sorted(found)


def fetched(libs: Path, ivy: str, *, first: str, failed: str, poms: bool = True) -> Path:
    """The folder `libs` with the jars of the Ivy module `ivy`, fetched unless they are there;
    `first` is a file that must be among them. Not `poms`: the module names artifacts alone, and
    nothing they depend on is looked for.

    Raises SetupError with the text `failed` ({log}: where Ivy's own words are).
    """
    if _complete(libs, ivy):
        return libs
    libs.parent.mkdir(parents=True, exist_ok=True)
    with (libs.parent / f"{libs.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _complete(libs, ivy):
            _fetch(libs, ivy, first, failed, poms=poms)
    return libs


def kafka_classpath() -> str:
    """The value of `java -cp` for Kafka's tools, clients and broker. Raises SetupError as
    `kafka_libs`.
    """
    return f"{kafka_libs()}/*"


def archive_file() -> Path:
    """Where `gateway.embedded.class_archive` keeps the classes of a broker."""
    return build_dir() / "kafka" / "classes.jsa"


def shared_classes() -> tuple[str, ...]:
    """Options of a JVM whose class path begins with `kafka_classpath()`: it starts in half the time
    where there is an archive that fits, and says nothing where there is none.
    """
    archive = archive_file()
    if not archive.exists():
        return ()
    return ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", f"-XX:SharedArchiveFile={archive}")


def _complete(libs: Path, ivy: str) -> bool:
    marker = libs / _DONE
    return marker.exists() and marker.read_text() == ivy


def _fetch(libs: Path, ivy: str, first: str, failed: str, *, poms: bool) -> None:
    part = libs.parent / f"{libs.name}.part"
    ivy_xml = libs.parent / f"{libs.name}.ivy.xml"
    ivy_xml.write_text(ivy)
    command = [java(), "-jar", str(_ivy_jar()), "-cache", str(_ivy_cache(poms=poms)), "-ivy"]
    command += [str(ivy_xml), "-confs", "default", "-types", "jar", "bundle", "tar.gz"]
    if not poms:
        settings = libs.parent / f"{libs.name}.ivysettings.xml"
        settings.write_text(_NO_POMS)
        command += ["-settings", str(settings)]
    command += ["-retrieve", f"{part}/[artifact]-[revision].[ext]"]
    said = ""
    for _ in range(2):  # A repository that hiccups once is no reason to fail the whole set-up.
        shutil.rmtree(part, ignore_errors=True)
        try:
            run = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_S_MAX)
        except subprocess.TimeoutExpired:
            said = f"no end after {DOWNLOAD_S_MAX:.0f} s"
            continue
        said = run.stdout + run.stderr
        if run.returncode == 0 and (part / first).exists():
            (part / _DONE).write_text(ivy)
            shutil.rmtree(libs, ignore_errors=True)
            part.rename(libs)
            return
    log = libs.parent / "ivy.log"
    log.write_text(said)
    raise SetupError(failed.format(log=log))


def _ivy_cache(*, poms: bool) -> Path:
    """What was fetched without POMs is kept as if it depended on nothing: whoever looks for what
    depends on it would miss half.
    """
    return build_dir() / ("ivy-poms" if poms else "ivy")


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is not None and spec.origin is not None:
        found = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
        if found:
            return found[-1]
    raise SetupError("pyspark is not installed (its Ivy fetches Kafka's jars): run `make setup`")


def main() -> int:
    """`python -m gateway.embedded.jars`: fetches the missing jars; with a version, the rows of
    kafka_jars.py for it. The exit status says if it worked.
    """
    try:
        java()
        if len(sys.argv) > 1:
            sys.stdout.write("".join(f"{row}\n" for row in listed(sys.argv[1])))
            return 0
        if not _complete(build_dir() / "kafka" / "libs", _usual_ivy()):
            sys.stderr.write("keyway: fetching Kafka's jars\n")
        kafka_libs()
    except SetupError as error:
        sys.stderr.write(f"keyway: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
