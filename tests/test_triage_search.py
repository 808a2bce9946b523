"""The searches, against oracles that know the answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sweep.triage import search
from sweep.triage.budget import Budget

PLENTY = Budget(1e9)


def counting(bad: Callable[[object], bool]) -> tuple[search.Oracle[object], list[object]]:
    asked: list[object] = []

    async def oracle(item: object) -> bool:
        asked.append(item)
        return bad(item)

    return oracle, asked


@pytest.mark.parametrize("first", range(50))
async def test_bisection_finds_the_first_bad_item_in_few_steps(first: int) -> None:
    oracle, asked = counting(lambda item: int(str(item)) >= first)
    assert await search.first_bad(list(range(50)), oracle) == first
    assert len(asked) <= 6


async def test_descent_ends_where_all_parents_are_good_on_a_graph_with_branches() -> None:
    # 0 → 1 → 2 → 5 and 0 → 3 → 4 → 5; the fault is in 3, so 3, 4 and 5 are bad, 1 and 2 are not.
    parents = {0: [], 1: [0], 2: [1], 3: [0], 4: [3], 5: [2, 4]}
    oracle, _ = counting(lambda item: item in (3, 4, 5))
    assert await search.descend(5, lambda i: parents[int(str(i))], oracle) == 3


@pytest.mark.parametrize("needed", [{3}, {0, 9}, {2, 3, 7}, set(range(10))])
async def test_ddmin_keeps_exactly_what_the_fault_needs(needed: set[int]) -> None:
    oracle, _ = counting(lambda kept: needed <= set(kept))  # type: ignore[call-overload]
    found = await search.ddmin(tuple(range(10)), oracle, PLENTY)
    assert set(found) == needed


async def test_ddmin_without_time_gives_back_what_it_has() -> None:
    oracle, asked = counting(lambda kept: True)
    spent = Budget(0)
    assert await search.ddmin((1, 2, 3), oracle, spent) == (1, 2, 3)
    assert asked == []


async def test_growing_stops_at_the_first_window_that_shows_the_fault() -> None:
    oracle, _ = counting(lambda s: {2, 4} <= set(s))  # type: ignore[call-overload]

    def wider(s: frozenset[int]) -> frozenset[int]:
        low = min(s)
        return s | ({low - 1} if low > 0 else set())

    assert await search.grow(frozenset({4}), wider, oracle) == frozenset({2, 3, 4})
    good, _ = counting(lambda s: False)
    assert await search.grow(frozenset({4}), wider, good) is None
