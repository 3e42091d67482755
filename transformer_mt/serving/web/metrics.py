"""Counts of what the server did, in Prometheus' text format."""

from collections import Counter
from collections.abc import Mapping

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """Counts. Labels are the server's own words: the endpoint's path as the server knows it, and the status."""

    def __init__(self) -> None:
        self.num_chars = 0
        self.num_billed = 0  # those by DeepL's API
        self._requests: Counter[tuple[str, int]] = Counter()
        self._slower: Counter[tuple[str, float]] = Counter()
        self._seconds: Counter[str] = Counter()

    def answered(self, endpoint: str, status: int, seconds: float) -> None:
        """A request has had its answer."""
        self._requests[endpoint, status] += 1
        self._seconds[endpoint] += seconds  # pyright: ignore[reportArgumentType], a sum of seconds
        for bound in SECONDS:
            self._slower[endpoint, bound] += seconds <= bound

    def text(self, others: Mapping[str, tuple[str, str, float]]) -> str:
        """All of it. `others` are more numbers, by name: type, help and value."""
        lines = _head("tmt_requests_total", "counter", "Requests that were answered, by endpoint and status.")
        for (endpoint, status), number in sorted(self._requests.items()):
            lines.append(f'tmt_requests_total{{endpoint="{endpoint}",status="{status}"}} {number}')
        lines += _head("tmt_request_seconds", "histogram", "From a request's first byte to its answer.")
        for endpoint, seconds in sorted(self._seconds.items()):
            count = sum(number for (of, _), number in self._requests.items() if of == endpoint)
            for bound in SECONDS:
                number = self._slower[endpoint, bound]
                lines.append(f'tmt_request_seconds_bucket{{endpoint="{endpoint}",le="{bound:g}"}} {number}')
            lines.append(f'tmt_request_seconds_bucket{{endpoint="{endpoint}",le="+Inf"}} {count}')
            lines.append(f'tmt_request_seconds_sum{{endpoint="{endpoint}"}} {seconds:.6f}')
            lines.append(f'tmt_request_seconds_count{{endpoint="{endpoint}"}} {count}')
        for name, (kind, said, value) in others.items():
            lines += [*_head(name, kind, said), f"{name} {value:g}" if value % 1 else f"{name} {int(value)}"]
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, said: str) -> list[str]:
    return [f"# HELP {name} {said}", f"# TYPE {name} {kind}"]
