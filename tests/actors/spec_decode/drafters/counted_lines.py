"""How much Python a call runs: a cost that no noise is in."""

import sys


def num_lines(module, call, *args):
    """Lines of that module."""
    count = 0

    def trace(frame, event, _):
        nonlocal count
        count += event == "line" and frame.f_code.co_filename == module.__file__
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call(*args)
    finally:
        sys.settrace(before)
    return count
