"""What pgbouncer does in transaction mode: a client has a server's session for the length of a transaction only.

Sessions go round, so that a transaction gets another one than the transaction before it wherever there are two.
"""

import contextlib
import queue
import select
import socket
import struct

from tests.faults.proxy import Link, Proxy, read_message

_WAIT = 30.0
_ASKS_FOR_PASSWORD = (3, 5, 10, 11)


class Pooler(Proxy):
    """As many sessions as clients have logged in, shared by all of them."""

    def __init__(self, server_url: str) -> None:
        self._idle: queue.Queue[socket.socket] = queue.Queue()
        self.switches = 0
        super().__init__(server_url)

    def _serve(self, link: Link) -> None:
        self._start(self._share, link)

    def _share(self, link: Link) -> None:
        with contextlib.suppress(OSError):
            _log_in(link)
            self._idle.put(previous := link.server)
            while (message := read_message(link.client))[:1] != b"X":
                server = self._idle.get(timeout=_WAIT)
                self.switches += server is not previous
                _transact(link.client, previous := server, message)
                self._idle.put(server)
        with contextlib.suppress(OSError):
            link.client.shutdown(socket.SHUT_RDWR)


def _log_in(link: Link) -> None:
    link.server.sendall(link.startup())
    while True:
        message = read_message(link.server)
        link.client.sendall(message)
        if message[:1] == b"Z":
            return
        if message[:1] == b"R" and struct.unpack("!I", message[5:9])[0] in _ASKS_FOR_PASSWORD:
            link.server.sendall(read_message(link.client))


def _transact(client: socket.socket, server: socket.socket, message: bytes) -> None:
    """Forwards both ways until the server is ready and in no transaction."""
    poll = select.poll()
    for side in (client, server):
        poll.register(side, select.POLLIN)
    unanswered = message[:1] in (b"Q", b"S")
    server.sendall(message)
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == client.fileno():
                message = read_message(client)
                unanswered += message[:1] in (b"Q", b"S")
                server.sendall(message)
            else:
                message = read_message(server)
                client.sendall(message)
                unanswered -= message[:1] == b"Z"
                if message[:1] == b"Z" and message[5:] == b"I" and not unanswered:
                    return
