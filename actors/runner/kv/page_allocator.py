"""Which pages are free, who uses the others, and which can be found by name.

A page with a name holds rows that others may share, and keeps them once nobody uses it, until its
room is needed: who was left longest ago goes first. Knows numbers and names; not what pages hold.
"""

from collections import OrderedDict

from outrider.actors.errors import IllegalTransition


class PageAllocator:
    """Pages 0 to num - 1. `take` and `share` add a user, `give_back` removes one."""

    def __init__(self, num: int) -> None:
        self.num = num
        self._blank = list(range(num))[::-1]
        self._kept: OrderedDict[int, None] = OrderedDict()  # named and unused, longest unused first
        self._num_users = [0] * num
        self._names: list[bytes | None] = [None] * num
        self._by_name: dict[bytes, int] = {}

    @property
    def num_free(self) -> int:
        """Pages that `take` can give: those included that are only kept."""
        return len(self._blank) + len(self._kept)

    def take(self) -> int:
        """A page for new rows. IndexError if none is free."""
        if self._blank:
            page = self._blank.pop()
        elif self._kept:
            page, _ = self._kept.popitem(last=False)
            self._forget(page)
        else:
            raise IndexError("no page is free")
        self._num_users[page] = 1
        return page

    def share(self, name: bytes) -> int | None:
        """The page of that name, with one user more; None if there is none."""
        page = self._by_name.get(name)
        if page is not None:
            self._kept.pop(page, None)
            self._num_users[page] += 1
        return page

    def give_back(self, page: int) -> None:
        """One user less."""
        self._num_users[page] -= 1
        if self._num_users[page] == 0:
            if self._names[page] is None:
                self._blank.append(page)
            else:
                self._kept[page] = None

    def name(self, page: int, name: bytes) -> None:
        """Let others find it, unless they find another page by that name."""
        if name not in self._by_name:
            self._by_name[name] = page
            self._names[page] = name

    def own(self, page: int) -> None:
        """Make it one that may be written. Raises IllegalTransition where others use it."""
        if self._names[page] is None:
            return
        if self._num_users[page] > 1:
            raise IllegalTransition(f"Page {page} is shared: its rows are not to be rewritten")
        self._forget(page)

    def _forget(self, page: int) -> None:
        name, self._names[page] = self._names[page], None
        if name is not None:
            del self._by_name[name]
