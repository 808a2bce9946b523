from __future__ import annotations

import asyncio

from sweep.gate import MeasuringGate


async def test_timing_is_alone_and_goes_before_work_that_came_later() -> None:
    gate = MeasuringGate()
    order: list[str] = []
    begun = asyncio.Event()
    finish = asyncio.Event()

    async def first_work() -> None:
        async with gate.working():
            begun.set()
            await finish.wait()
            order.append("first work")

    async def timing() -> None:
        async with gate.timing():
            order.append("timing begins")
            await asyncio.sleep(0.01)
            order.append("timing ends")

    async def late_work() -> None:
        async with gate.working():
            order.append("late work")

    tasks = [asyncio.create_task(first_work())]
    await begun.wait()
    tasks.append(asyncio.create_task(timing()))
    await asyncio.sleep(0)
    tasks.append(asyncio.create_task(late_work()))
    await asyncio.sleep(0.01)
    assert order == []
    finish.set()
    await asyncio.gather(*tasks)
    assert order == ["first work", "timing begins", "timing ends", "late work"]


async def test_a_cancelled_timing_lets_work_go_on() -> None:
    gate = MeasuringGate()
    async with gate.working():
        waiting = asyncio.create_task(gate.timing().__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    async with asyncio.timeout(1), gate.working():
        pass


async def test_pieces_of_work_run_side_by_side() -> None:
    gate = MeasuringGate()
    async with asyncio.timeout(1), gate.working(), gate.working():
        pass
