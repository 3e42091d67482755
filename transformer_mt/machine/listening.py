"""A place in the network to listen at."""

import errno
import socket
import sys

from transformer_mt.errors import UserError


def bound(host: str, port: int) -> socket.socket:
    """A socket that is to listen there, at any free port for 0. Raises UserError where that is not possible."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
        if sys.platform != "win32":  # where it would let two servers listen at one place
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except (OSError, UnicodeError) as error:  # no name of a host may be so
        raise _refusal(host, port, error) from None
    return listener


def listen(listener: socket.socket) -> None:
    """Let clients come to a socket that is bound. Raises UserError where another server has begun to listen there
    since: until one does, Linux gives several the same place.
    """
    try:
        listener.listen()
    except OSError as error:
        host, port = listener.getsockname()[:2]
        raise _refusal(host, port, error) from None


def _refusal(host: str, port: int, error: OSError | UnicodeError) -> UserError:
    other = "--port" if getattr(error, "errno", None) in (errno.EADDRINUSE, errno.EACCES) else "--host"
    reason = getattr(error, "strerror", None) or str(error)
    return UserError(f"The server cannot listen on {host}, port {port}: {reason}. Give another {other}.")


def address(host: str, port: int) -> str:
    """The address of a page there, as a browser takes it."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
