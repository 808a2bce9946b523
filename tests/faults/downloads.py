"""A model server that misbehaves in the way that a test asks for."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Misbehaving:
    """What the server does, and what it was asked."""

    body: bytes
    url: str = ""
    cut_after: int | None = None
    """Bytes after which the first answer breaks off."""
    stall: bool = False
    """The first answer stops there, instead of ending."""
    status: int = 200
    location: str | None = None
    say_length: bool = True
    ranges: list[str | None] = field(default_factory=list)
    """The `Range` header of every request."""
    release: threading.Event = field(default_factory=threading.Event)


@contextlib.contextmanager
def misbehaving(body: bytes) -> Iterator[Misbehaving]:
    """Runs the server; `body` is what it has to give."""
    plan = Misbehaving(body)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            plan.ranges.append(wanted)
            offset = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
            self.send_response(206 if wanted else plan.status)
            if plan.location is not None:
                self.send_header("Location", plan.location)
            self.send_header("ETag", '"one"')
            if wanted:
                total = len(plan.body)
                self.send_header("Content-Range", f"bytes {offset}-{total - 1}/{total}")
            if plan.say_length:
                self.send_header("Content-Length", str(len(plan.body) - offset))
            else:
                self.send_header("Connection", "close")
                self.close_connection = True
            self.end_headers()
            rest = plan.body[offset:]
            if plan.cut_after is not None and len(plan.ranges) == 1:
                self.wfile.write(rest[: plan.cut_after])
                self.wfile.flush()
                # Time for what was sent to arrive; a stall lasts until the client has given up.
                plan.release.wait(30 if plan.stall else 0.3)
                self.close_connection = True
                self.connection.shutdown(2)
                return
            with contextlib.suppress(ConnectionError):
                self.wfile.write(rest)

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        plan.url = f"http://127.0.0.1:{server.server_address[1]}/model.tflite"
        try:
            yield plan
        finally:
            plan.release.set()
            server.shutdown()
