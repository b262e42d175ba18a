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
        self._idle: queue.Queue[_Side] = queue.Queue()
        self.switches = 0
        super().__init__(server_url)

    def _serve(self, link: Link) -> None:
        self._start(self._share, link)

    def _share(self, link: Link) -> None:
        # A client that gets no session hears of it by the end of its connection; else it would wait for ever.
        with contextlib.suppress(OSError, queue.Empty):
            _log_in(link)
            client, server = _Side(link.client), _Side(link.server)
            self._idle.put(server)
            previous = server
            while (messages := client.wait())[0][:1] != b"X":
                server = self._idle.get(timeout=_WAIT)
                self.switches += server is not previous
                _transact(client, previous := server, messages)
                self._idle.put(server)
        with contextlib.suppress(OSError):
            link.client.shutdown(socket.SHUT_RDWR)


class _Side:
    """One end of a connection. What came of a message is kept until the rest of it is there.

    Who waited for the rest would wait for ever: a server holds back the end of a long answer until it is asked more.
    """

    def __init__(self, side: socket.socket) -> None:
        self.socket = side
        self._parts = bytearray()

    def wait(self) -> list[bytes]:
        """At least one message."""
        while not (messages := self.receive()):
            pass
        return messages

    def receive(self) -> list[bytes]:
        """The messages that are whole by now, perhaps none. Something must have come."""
        part = self.socket.recv(1 << 16)
        if not part:
            raise ConnectionError
        self._parts += part
        messages = []
        while len(self._parts) >= 5 and len(self._parts) > (last := struct.unpack("!I", self._parts[1:5])[0]):
            messages.append(bytes(self._parts[: last + 1]))
            del self._parts[: last + 1]
        return messages

    def send(self, messages: list[bytes]) -> None:
        self.socket.sendall(b"".join(messages))


def _log_in(link: Link) -> None:
    link.server.sendall(link.startup())
    while True:
        message = read_message(link.server)
        link.client.sendall(message)
        if message[:1] == b"Z":
            return
        if message[:1] == b"R" and struct.unpack("!I", message[5:9])[0] in _ASKS_FOR_PASSWORD:
            link.server.sendall(read_message(link.client))


def _transact(client: _Side, server: _Side, messages: list[bytes]) -> None:
    """Forwards both ways until the server is ready and in no transaction."""
    poll = select.poll()
    for side in (client, server):
        poll.register(side.socket, select.POLLIN)
    unanswered = 0
    while True:
        unanswered += sum(message[:1] in (b"Q", b"S") for message in messages)
        server.send(messages)
        messages = []
        for descriptor, _ in poll.poll():
            if descriptor == client.socket.fileno():
                messages = client.receive()
            else:
                answers = server.receive()
                client.send(answers)
                ready = [answer[5:] for answer in answers if answer[:1] == b"Z"]
                unanswered -= len(ready)
                if ready and ready[-1] == b"I" and not unanswered and not messages:
                    return
