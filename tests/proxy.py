"""A proxy before an MLflow server that makes one call of a client go wrong.

It numbers the calls of a client from 1, in the order in which they arrive, and keeps a log of them.
Of the call with a fault's number it does what the fault says; `outage` and `cut` last to the end.
"""

import http.client
import os
import random
import signal
import socket
import threading
import time
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import urlsplit

from scrib_mlflow.workflows.demo import HOST

KINDS = {
    "drop": "the connection is closed, and the server sees nothing",
    "500": "the answer is 500, and the server sees nothing",
    "lost": "the server does it, and the answer is lost",
    "outage": "from this call on, every connection is closed",
    "cut": "the server does it, but from its answer on, every connection is closed",
    "kill_before": "the client is killed, and the server sees nothing",
    "kill_after": "the server does it, and the client is killed",
}
HOLD = "hold"  # the call waits until the test lets it go
IDLE_SECONDS = 60
HOLD_SECONDS = 300
OWN = {"connection", "keep-alive", "transfer-encoding", "host", "content-length"}  # of a connection


class Call(NamedTuple):
    """A call as it arrived."""

    number: int
    method: str
    path: str  # without its query


@dataclass
class Fault:
    """What goes wrong, and at which call.

    In place of a number, `where` is a part of a path, `method` a call's method, and `after` a part
    of the path of a call that has to be done before; with `stays` it happens to all such calls.
    """

    kind: str
    number: int = 0
    where: str = ""
    method: str = ""
    after: str = ""
    stays: bool = False
    hit: Call | None = None

    def meets(self, call, log):
        """Return what happens to a call, "" for nothing."""
        if self.hit is not None and self.kind in {"outage", "cut"}:
            return "drop"
        if (self.hit is None or self.stays) and self._means(call, log):
            self.hit = call
            return {"outage": "drop", "cut": "lost"}.get(self.kind, self.kind)
        return ""

    def _means(self, call, log):
        if self.number:
            return call.number == self.number
        late = not self.after or any(self.after in f"{c.method} {c.path}" for c in log[:-1])
        return late and self.where in call.path and self.method in {"", call.method}


@dataclass
class Proxy:
    """Where clients find the server, and what happens to their calls."""

    address: str
    upstream: str
    faults: tuple[Fault, ...] = ()
    delay: float = 0.0  # seconds before each call; `uneven` draws up to twice as many
    uneven: random.Random | None = None
    log: list[Call] = field(default_factory=list)
    pid: Future = field(default_factory=Future)  # of the client, which a fault may kill
    held: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)
    busy: int = 0
    lock: threading.Condition = field(default_factory=threading.Condition)

    def begin(self, *faults, delay=0.0, uneven=None):
        """Count from 1 again, for a new client."""
        self.idle()
        self.faults, self.log, self.pid = faults, [], Future()
        self.delay, self.uneven = delay, uneven
        self.held, self.go = threading.Event(), threading.Event()

    def wait(self):
        """Wait as long as each call has to."""
        time.sleep(self.delay if self.uneven is None else self.uneven.uniform(0, 2 * self.delay))

    def idle(self):
        """Wait until the server has answered all calls, also those of clients that are gone."""
        with self.lock:
            assert self.lock.wait_for(lambda: self.busy == 0, IDLE_SECONDS)

    def arrive(self, method, path):
        """Write a call down, and return what is to go wrong with it, "" for nothing."""
        with self.lock:
            call = Call(len(self.log) + 1, method, urlsplit(path).path)
            self.log.append(call)
            return next(filter(None, (each.meets(call, self.log) for each in self.faults)), "")

    def kill(self):
        """Kill the client at once."""
        with suppress(ProcessLookupError):
            os.kill(self.pid.result(IDLE_SECONDS), signal.SIGKILL)

    @contextmanager
    def forwarding(self):
        """Count as busy."""
        with self.lock:
            self.busy += 1
        try:
            yield
        finally:
            with self.lock:
                self.busy -= 1
                self.lock.notify_all()


@contextmanager
def proxy_before(upstream):
    """Yield a proxy before a server's address; it listens until the end of the block."""
    server = _Server((HOST, 0), _Handler)
    proxy = Proxy(f"http://{HOST}:{server.server_address[1]}", upstream)
    server.proxy = proxy
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True  # those that keep a connection open end with the tests
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, *_):
        """Say nothing of clients that are gone."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # an answer is one packet
    upstream = None

    def log_message(self, *_):
        """Print nothing; the log is a list."""

    def _handle(self):
        proxy = self.server.proxy
        body = self._body()
        with proxy.forwarding():
            what = proxy.arrive(self.command, self.path)
            proxy.wait()
            if what == HOLD:
                proxy.held.set()
                proxy.go.wait(HOLD_SECONDS)
                what = ""
            if what in {"drop", "kill_before"}:
                if what == "kill_before":
                    proxy.kill()
                self._hang_up()
            elif what == "500":
                self._answer(500, [("Content-Type", "text/plain")], b"injected")
            else:
                answer = self._forward(body)
                if what == "kill_after":
                    proxy.kill()
                if what:
                    self._hang_up()
                else:
                    self._answer(*answer)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = _handle  # noqa: N815

    def _body(self):
        """Return what the client sends, whole."""
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _forward(self, body):
        """Return status, headers and body of the server's answer."""
        headers = {k: v for k, v in self.headers.items() if k.lower() not in OWN}
        connection = http.client.HTTPConnection(urlsplit(self.server.proxy.upstream).netloc)
        try:
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            kept = [(k, v) for k, v in answer.getheaders() if k.lower() not in OWN]
            return answer.status, kept, answer.read()
        finally:
            connection.close()

    def _answer(self, status, headers, body):
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def _hang_up(self):
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
