"""What a process has built before it serves is no garbage, and never looked at again.

Python's collector goes over all that lives now and then: of a process with torch and transformers
400,000 objects, 0.3 s in which no round and no answer goes on.
"""

import gc


def freeze() -> None:
    """Take all that lives now out of the collector's sight. For a process that serves from here to
    its end: cycles among it are never freed.
    """
    gc.collect()
    gc.freeze()
