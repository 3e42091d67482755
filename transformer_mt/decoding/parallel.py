"""Several batches at once on the cores of a CPU.

A step of a search is a hundred small operations, each too short to be shared out among cores without losing most of the
gain in waiting. A batch a core needs no waiting: torch lets go of Python's lock while it computes.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

# Python itself runs one thread at a time: about a tenth of a search.
MAX_WORKERS = 4
Result = TypeVar("Result")


def in_parallel(tasks: Iterable[Callable[[], Result]], num_tasks: int, device: torch.device) -> Generator[Result]:
    """The results of tasks that compute on this device, in their order; few of them wait to be fetched.

    On a CPU they run in threads that share out torch's; closing the iterator gives those back.
    """
    threads = torch.get_num_threads()
    num_workers = min(MAX_WORKERS, threads, num_tasks) if device.type == "cpu" else 1
    if num_workers <= 1:
        for task in tasks:
            yield task()
        return
    pool = ThreadPoolExecutor(num_workers, "search", torch.set_num_threads, (threads // num_workers,))
    try:
        running: deque[Future[Result]] = deque()
        for task in tasks:
            running.append(pool.submit(task))
            if len(running) > 2 * num_workers:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)  # the setting is not the workers' alone
