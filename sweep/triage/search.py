"""The searches, without a model or a browser: they ask an oracle whether a fault is there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from sweep.triage.budget import Budget

T = TypeVar("T")
Oracle = Callable[[T], Awaitable[bool]]
"""True: the fault shows."""


async def first_bad(items: Sequence[T], bad: Oracle[T]) -> T:
    """Bisection: an item that is bad while the one before it is good (or there is none).

    `items` are in topological order and the last is known to be bad. Where badness is not
    monotone the answer is still a boundary, just not the only one; see `descend`.
    """
    low, high = -1, len(items) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if await bad(items[middle]):
            high = middle
        else:
            low = middle
    return items[high]


async def descend(start: T, parents: Callable[[T], Iterable[T]], bad: Oracle[T]) -> T:
    """From a bad item to one all of whose parents are good: bisection's answer made certain.

    A prefix holds only what its tensor depends on, so on a graph with branches an early tensor
    of one branch can be good and a later one of another bad. Walking up bad parents ends at a
    boundary whatever the shape of the graph.
    """
    current = start
    while True:
        for parent in parents(current):
            if await bad(parent):
                current = parent
                break
        else:
            return current


async def grow(
    start: frozenset[T], wider: Callable[[frozenset[T]], frozenset[T]], bad: Oracle[frozenset[T]]
) -> frozenset[T] | None:
    """The first of ever wider sets that is bad; None when the widest is not."""
    current = start
    while not await bad(current):
        following = wider(current)
        if following == current:
            return None
        current = following
    return current


async def ddmin(items: Sequence[T], bad: Oracle[tuple[T, ...]], budget: Budget) -> tuple[T, ...]:
    """Delta debugging (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing
    input", 2002, by complements): a bad subset from which no single item can be dropped.

    `items` are known to be bad. When the budget ends the smallest found so far is returned.
    """
    current = tuple(items)
    parts = 2
    while len(current) > 1 and budget.left > 0:
        size = -(-len(current) // parts)
        for start in range(0, len(current), size):
            rest = current[:start] + current[start + size :]
            if rest and await bad(rest):
                current = rest
                parts = max(parts - 1, 2)
                break
            if budget.left <= 0:
                break
        else:
            if size == 1:
                break
            parts = min(parts * 2, len(current))
    return current


async def smallest(largest: int, bad: Oracle[int]) -> int:
    """The smallest size in 1..largest that is bad with the one below it good; `largest` is bad."""
    low, high = 0, largest
    while high - low > 1:
        middle = (low + high) // 2
        if await bad(middle):
            high = middle
        else:
            low = middle
    return high
