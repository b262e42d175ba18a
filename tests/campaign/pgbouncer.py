"""A real pgbouncer in transaction mode, where there is one or one can be had."""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Self

from psycopg.conninfo import conninfo_to_dict

_PACKAGES = ("pgbouncer", "libevent-2.1-7", "libc-ares2")

_PATIENCE = 30.0
"""Seconds for a download."""

_CONFIGURATION = """\
[databases]
* = host={host} port={port} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {size}
max_client_conn = 1000
ignore_startup_parameters = extra_float_digits
"""


def find_pgbouncer(cache: Path) -> Path | None:
    """A directory in which it is ``usr/sbin/pgbouncer``, with the libraries that it needs; None if it cannot be had.

    The machine's own, or that of Debian's package, unpacked without being installed.
    """
    if Path("/usr/sbin/pgbouncer").exists():
        return Path("/")
    if not (cache / "usr").exists() and shutil.which("apt-get") and shutil.which("dpkg"):
        cache.mkdir(parents=True, exist_ok=True)
        command = ["apt-get", "download", *_PACKAGES]
        with contextlib.suppress(subprocess.SubprocessError):
            subprocess.run(command, cwd=cache, capture_output=True, check=True, timeout=_PATIENCE)
            for archive in cache.glob("*.deb"):
                subprocess.run(["dpkg", "-x", archive, cache], check=True, capture_output=True)
    program = cache / "usr/sbin/pgbouncer"
    if not program.exists():
        return None
    works = subprocess.run([program, "--version"], env=_environment(cache), capture_output=True, check=False)
    return None if works.returncode else cache


class Pgbouncer:
    """A running pooler before a server. ``url`` is that server's, through it."""

    def __init__(self, found: Path, server_url: str, *, size: int = 4) -> None:
        server: dict[str, Any] = dict(conninfo_to_dict(server_url))
        self._directory = Path(tempfile.mkdtemp(prefix="lakelog-pgbouncer-"))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.url = f"postgresql://{server.get('user', 'postgres')}@127.0.0.1:{self._port}/{server['dbname']}"
        self._settings = self._directory / "pgbouncer.ini"
        self._settings.write_text(
            _CONFIGURATION.format(
                host=server["host"],
                port=server.get("port", 5432),
                user=server.get("user", "postgres"),
                listen=self._port,
                size=size,
            )
        )
        self._home = found
        if found != Path("/"):
            # Where the account that it runs under may go.
            self._home = self._directory / "program"
            shutil.copytree(found / "usr", self._home / "usr", symlinks=True)
        self._account: dict[str, Any] = {}
        if os.geteuid() == 0:
            # It refuses to run as root.
            nobody = pwd.getpwnam("nobody")
            self._account = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            self._directory.chmod(0o755)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def start(self) -> None:
        """Returns when it takes connections."""
        self._process = subprocess.Popen(
            [self._home / "usr/sbin/pgbouncer", "-q", self._settings],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=_environment(self._home),
            **self._account,
        )
        end = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1).close()
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)
            else:
                return

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None

    def freeze(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


def _environment(home: Path) -> dict[str, str]:
    if home == Path("/"):
        return dict(os.environ)
    libraries = {str(path.parent) for path in home.rglob("*.so*")}
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(sorted(libraries))}
