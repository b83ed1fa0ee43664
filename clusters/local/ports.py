"""Free loopback ports that stay ours until the server that gets them binds.

A port found by binding to 0 and closing may be handed to somebody else a moment later. One that has carried a
connection stays in TIME_WAIT for a minute: the kernel gives it to nobody who asks for *any* port, while a server that
asks for it by number and sets SO_REUSEADDR (every Go program does) gets it.
"""

import contextlib
import socket


def free_ports(count: int) -> list[int]:
    """All different, because all are held until the last is found."""
    with contextlib.ExitStack() as held:
        return [_reserve(held) for _ in range(count)]


def _reserve(held: contextlib.ExitStack) -> int:
    listener = held.enter_context(socket.socket())
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", 0))
    listener.listen(1)
    address = listener.getsockname()
    client = held.enter_context(socket.create_connection(address))
    server, _ = listener.accept()
    server.close()  # the side that closes first is the one whose port waits
    with client:
        client.recv(1)
    port: int = address[1]
    return port
