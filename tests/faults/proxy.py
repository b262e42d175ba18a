"""A network that can be told to fail: forwards PostgreSQL's protocol and knows BEGIN and COMMIT when it sees them."""

import contextlib
import ctypes
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Self
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict

_WAIT = 30.0


class Proxy:
    """Stands between a lake and its server. ``url`` is the server's, through the proxy.

    ``at_commit`` is called once with the next COMMIT that comes by, instead of forwarding it, ``at_begin`` with the
    next BEGIN, and all that was sent in one piece with it. With ``freezes_at`` nothing passes any more, in either
    direction and for whoever connects, once a client has sent these bytes. With a ``pace`` it takes so many bytes at a
    time from its clients, a thousand times a second at most, and has no room for more.
    """

    def __init__(self, server_url: str, *, pace: int | None = None) -> None:
        self._server = conninfo_to_dict(server_url)
        self._pace = pace
        self._listener = socket.socket()
        if pace is not None:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, pace)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen()
        self._threads: list[threading.Thread] = []
        self._links: list[Link] = []
        self._closed = False
        self.reachable = True
        self.at_commit: Fault | None = None
        self.at_begin: Fault | None = None
        self.freezes_at: bytes | None = None
        self.delay = 0.0
        """Seconds by which what clients send comes later."""
        self._frozen = threading.Event()
        user, password = str(self._server.get("user", "postgres")), self._server.get("password")
        login = quote(user) + (f":{quote(str(password))}" if password else "")
        host = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.url = f"postgresql://{login}@{host}/{self._server['dbname']}?sslmode=disable&gssencmode=disable"
        self._start(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        self._frozen.clear()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for link in self._links:
            link.cut()
        for thread in self._threads:
            thread.join(_WAIT)
            assert not thread.is_alive()
        for link in self._links:
            link.close()

    def cut_all(self, but: "Link | None" = None) -> int:
        """Every connection that stands now is lost, and the server cannot be reached. How many these were."""
        self.reachable = False
        lost = [link for link in self._links if link is not but and not link.is_cut]
        for link in lost:
            link.cut()
        return len(lost)

    def reset_some(self, rng: random.Random) -> int:
        """Some connections end as if the other side had never heard of them. How many these were."""
        standing = [link for link in self._links if not link.is_cut]
        chosen = rng.sample(standing, min(len(standing), rng.choice((1, 2, 5))))
        for link in chosen:
            link.reset()
        return len(chosen)

    def freeze(self) -> None:
        """Nothing passes any more, in either direction."""
        self._frozen.set()

    def thaw(self) -> None:
        self._frozen.clear()

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                server = self._connect()
            except OSError:
                client.close()
                continue
            link = Link(client, server, self._pace, self._frozen)
            self._links.append(link)
            self._serve(link)

    def _connect(self) -> socket.socket:
        if not self.reachable:
            raise ConnectionError
        host, port = str(self._server.get("host", "localhost")), self._server.get("port", 5432)
        if host.startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(f"{host}/.s.PGSQL.{port}")
            except OSError:
                server.close()
                raise
            return server
        return socket.create_connection((host, int(port or 5432)))

    def _serve(self, link: "Link") -> None:
        self._start(self._forward, link)
        self._start(link.answer)

    def _forward(self, link: "Link") -> None:
        with contextlib.suppress(OSError):
            for message, statement in link.requests(lambda: self.at_begin is not None):
                fault = None
                if self.freezes_at is not None and self.freezes_at in message:
                    self.freeze()
                wait_while(self._frozen)
                if self.delay:
                    time.sleep(self.delay)
                if statement == b"COMMIT":
                    fault, self.at_commit = self.at_commit, None
                elif statement is not None:
                    fault, self.at_begin = self.at_begin, None
                if fault is None:
                    link.server.sendall(message)
                else:
                    fault(link, message)
        link.cut()


Fault = Callable[["Link", bytes], None]


class Link:
    """One client's connection and its counterpart to the server."""

    def __init__(self, client: socket.socket, server: socket.socket, pace: int | None, frozen: threading.Event) -> None:
        self.client = client
        self._frozen = frozen
        self._pace = pace
        self.server = server
        self.backend = 0
        self.is_cut = False
        self._committed = threading.Event()
        self._deaf = False
        self._ends = False

    def startup(self) -> bytes:
        (length,) = struct.unpack("!I", start := _read(self.client, 4))
        return start + _read(self.client, length - 4)

    def requests(self, stops_at_begin: Callable[[], bool]) -> Iterator[tuple[bytes, bytes | None]]:
        """What the client sends, and which statement it is, if one at which the network may fail.

        Such a one comes with everything up to the end of its pipeline.
        """
        yield self.startup(), None
        names: dict[bytes, bytes] = {}
        while message := read_message(self.client, self._pace):
            statement = None
            if message[:1] == b"P":
                name, query = message[5:].split(b"\0")[:2]
                names[name] = query.split()[0] if query else b""
            elif message[:1] == b"B":
                statement = names.get(message[5:].split(b"\0")[1])
            if statement == b"COMMIT" or (statement == b"BEGIN" and stops_at_begin()):
                while message[-5:] != b"S\0\0\0\4":
                    message += read_message(self.client, self._pace)
                yield message, statement
            else:
                yield message, None

    def answer(self) -> None:
        """Hands the server's answers to the client."""
        with contextlib.suppress(OSError):
            while message := read_message(self.server):
                if message[:1] == b"K":
                    (self.backend,) = struct.unpack("!I", message[5:9])
                if (message[:1], message[5:]) == (b"C", b"COMMIT\0"):
                    self._committed.set()
                wait_while(self._frozen)
                if not self._deaf:
                    self.client.sendall(message)
                # Not with the end of what was asked before, which may still be on its way.
                if self._ends and self._committed.is_set() and message[:1] == b"Z":
                    break
        self.cut()

    def cut(self) -> None:
        """Both sides see the end of the connection."""
        self.is_cut = True
        for side in (self.client, self.server):
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)

    def reset(self) -> None:
        """The client gets an error instead of an end."""
        # To no address at all: what TCP answers to is RST, which a close after a shutdown is not.
        ctypes.CDLL(None).connect(self.client.fileno(), bytes(16), 16)
        self.cut()

    def hang_up(self) -> None:
        """Only the client does. The server does not notice anything."""
        self._deaf = True
        self.client.shutdown(socket.SHUT_RDWR)

    def commit_unheard(self, message: bytes) -> None:
        """Lets the server commit, and keeps its answer from the client."""
        self._deaf = True
        self._committed.clear()
        self.server.sendall(message)
        assert self._committed.wait(_WAIT), "the server does not commit"

    def commit_and_end(self, message: bytes) -> None:
        """Lets the server commit and answer, and nothing more."""
        self._committed.clear()
        self._ends = True
        self.server.sendall(message)

    def swallow_answer(self, message: bytes) -> None:
        """Lets the server commit, and cuts the connection before the client hears of it."""
        self.commit_unheard(message)
        self.cut()

    def close(self) -> None:
        self.client.close()
        self.server.close()


def wait_while(event: threading.Event) -> None:
    while event.is_set():
        time.sleep(0.01)


def read_message(side: socket.socket, pace: int | None = None) -> bytes:
    head = _read(side, 5)
    return head + _read(side, struct.unpack("!I", head[1:])[0] - 4, pace)


def _read(side: socket.socket, size: int, pace: int | None = None) -> bytes:
    found = bytearray()
    while len(found) < size:
        part = side.recv(min(size - len(found), pace or size))
        if not part:
            raise ConnectionError
        found += part
        if pace is not None:
            time.sleep(0.001)
    return bytes(found)
