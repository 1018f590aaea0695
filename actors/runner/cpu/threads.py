"""How many threads of this process do the models' work, and those that share large products."""

from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch


class Threads:
    """All over this process."""

    num = 1


def share_among(num_threads: int) -> None:
    """Have so many threads of this process do the models' work from now on."""
    torch.set_num_threads(num_threads)
    Threads.num = num_threads


@cache
def helpers(num: int) -> ThreadPoolExecutor:
    """So many threads of this process that take a share of large products."""
    return ThreadPoolExecutor(num, thread_name_prefix="product")
