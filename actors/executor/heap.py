"""What a process has built before it serves is no garbage, and never looked at again.

Python's collector goes over all that lives now and then: of a process with torch and transformers
400,000 objects, 0.3 s in which no round and no answer goes on.
"""

import gc


def pause() -> None:
    """Collect nothing until `freeze` or `resume`. What a start imports and builds stays, yet the
    collector would go over it again and again: a quarter of the time that torch and transformers
    take.
    """
    gc.disable()


def resume() -> None:
    """Collect again, also where a start has failed."""
    gc.enable()


def freeze(*, collects: bool = True) -> None:
    """Take all that lives now out of the collector's sight. For a process that serves from here to
    its end: cycles among it are never freed, nor those that are garbage already if it does not
    collect.
    """
    if collects:
        gc.collect()
    gc.freeze()
    gc.enable()
