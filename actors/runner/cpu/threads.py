"""How many threads of this process do the models' work."""

import torch


class Threads:
    """All over this process."""

    num = 1


def share_among(num_threads: int) -> None:
    """Have so many threads of this process do the models' work from now on."""
    torch.set_num_threads(num_threads)
    Threads.num = num_threads
