"""`tmt serve` as a process that tests start, ask and stop."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from copies import Copy


@dataclass(frozen=True)
class Answer:
    """What a server answers: its status, headers by their names in lower case, and its body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Served:
    """A server of these runs, on a port that was free: `tmt serve` or `tmt watch`. Paths are runs, all else options.
    It is a copy, or where `anew` a new Python: for tests of its end, and where it lives on beside other tests, some of
    which assert that their process has no copies.
    """

    def __init__(
        self, *arguments: str | Path, environment: dict[str, str] | None = None, verb: str = "serve", anew: bool = False
    ) -> None:
        name = ("--run", "--device", "cpu") if verb == "serve" else ()
        words = [word for one in arguments for word in ((*name[:1], str(one)) if isinstance(one, Path) else (one,))]
        words = [verb, "--port", "0", *name[1:], *words]
        variables = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
        self._said = tempfile.NamedTemporaryFile("r")  # noqa: SIM115, open for as long as the server lives
        self.process: Copy | subprocess.Popen[bytes]
        if anew:
            command = [sys.executable, "-m", "transformer_mt", *words]
            self.process = subprocess.Popen(command, stderr=self._said, env=variables)
        else:
            said = Path(self._said.name)
            self.process = Copy(Path.cwd(), *words, environment=variables, together=True, stdout=said)
        self.port = self._wait_for_port()

    def _wait_for_port(self) -> int:
        end = time.monotonic() + 120
        while self.process.poll() is None and time.monotonic() < end:
            if found := re.search(r"http://127\.0\.0\.1:(\d+).*\n", "".join(self.told)):
                return int(found[1])
            time.sleep(0.02)
        self.process.kill()
        raise AssertionError(self.told)

    @property
    def told(self) -> list[str]:
        """The lines that it has said so far."""
        return Path(self._said.name).read_text().splitlines(keepends=True)

    def __enter__(self) -> "Served":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> int:
        """End the server, and its processes. Its exit status."""
        for pid in self.search_processes():
            os.kill(pid, signal.SIGCONT)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        finally:
            self.process.kill()

    def search_processes(self) -> list[int]:
        """The processes that search, by their numbers: the server's process of processes has begun them."""
        return [pid for child in _children(self.process.pid) for pid in _children(child)]

    def signal_search(self, number: int) -> list[int]:
        """Send a signal to all of them. Their numbers."""
        pids = self.search_processes()
        for pid in pids:
            os.kill(pid, number)
        return pids

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def get(self, path: str, headers: dict[str, str] | None = None) -> Answer:
        return self.request("GET", path, headers=headers)

    def post(self, path: str, values: dict[str, Any], headers: dict[str, str] | None = None) -> Answer:
        """With the values as JSON."""
        return self.request(
            "POST", path, json.dumps(values).encode(), {"Content-Type": "application/json", **(headers or {})}
        )

    def form(self, path: str, values: Any, headers: dict[str, str] | None = None) -> Answer:
        """With the values as a form."""
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        return self.request("POST", path, urlencode(values).encode(), {**kind, **(headers or {})})

    def translate(self, text: str | list[str], **values: Any) -> Any:
        """What /translate answers from English to Spanish. The request succeeds."""
        answer = self.post("/translate", {"q": text, "source": "en", "target": "es", **values})
        assert answer.status == 200, answer
        return answer.json["translatedText"]

    def connect(self) -> socket.socket:
        """A bare connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)


Serve = Callable[..., Served]  # starts a server with options of its own
Answers = Callable[[Served], None]  # asserts that it has the right answers


def _children(pid: int) -> list[int]:
    found = []
    for path in Path("/proc", str(pid), "task").glob("*/children"):
        found += map(int, path.read_text().split())
    return found
