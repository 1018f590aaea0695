"""Documentation of a module that does not exist, in the form of Python's own."""

from pathlib import Path

NUM_FUNCTIONS = 320
PAGE = """\
.. _abacus-page:

:mod:`abacus` --- Counting with beads
=====================================

.. module:: abacus
   :synopsis: Beads.

**Source code:** :source:`Lib/abacus.py`

.. index:: single: beads

Beads are what the :term:`user <reader>` counts with, see :ref:`abacus-page` and
:pep:`8`.  An example::

   >>> Frame(3)

.. note::

   Wet beads ``slip``.

.. class:: Frame(rods, \\
                 beads=10)
           Frame(other)

   A wooden frame with *rods*, as :func:`~carpentry.build` makes it.  It can be
   shaken.

   .. versionadded:: 3.2

   .. method:: shake()

      Return all beads to where :class:`Frame` had them.

.. data:: COLOURS

   The names of all colours::

      >>> COLOURS

.. function:: shaken(frame)
   :noindex:

   Said elsewhere.
"""
FUNCTION = """
.. function:: count{number}(*beads)

   Count the beads of rod number {number} from left to right.  Rods broken {number} times
   count for nothing.
"""


def write(folder: Path) -> Path:
    """A folder as the documentation's: one page of the library, and the one that must be there."""
    library = folder / "library"
    library.mkdir(parents=True)
    functions = "".join(FUNCTION.format(number=number) for number in range(NUM_FUNCTIONS))
    (library / "abacus.rst.txt").write_text(PAGE + functions)
    (library / "functions.rst.txt").write_text(".. function:: len(s)\n\n   Return the length.\n")
    return folder
