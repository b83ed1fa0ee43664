"""Addresses to listen on, as flags have them."""


def parse_address(text: str) -> tuple[str, int]:
    """`127.0.0.1:8080`, `[::1]:8080`, or `:8080` for every address of this host. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(f"{text!r} is no address; write 127.0.0.1:8080 or :8080")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - what `:8080` means
