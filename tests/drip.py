"""A server that sends what it is given in drops, for as long as the client bears it."""

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Thread

__all__ = ["dripping"]


@contextmanager
def dripping(*answers: Sequence[bytes], pause_s: float = 0.02) -> Iterator[str]:
    """Serve each connection the next answer, a part at a time; yields the URL of the server.

    The last part of an answer is repeated until the client has gone.
    """
    over = Event()

    def pour(connection: socket.socket, parts: Sequence[bytes]) -> None:
        with connection, suppress(OSError):
            connection.recv(1 << 16)
            for part in parts[:-1]:
                connection.sendall(part)
            while not over.wait(pause_s):
                connection.sendall(parts[-1])

    def serve() -> None:
        for parts in answers:
            with suppress(OSError):
                pour(listener.accept()[0], parts)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        finally:
            over.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
