from __future__ import annotations

import asyncio
from datetime import date
from pathlib import Path

import aiohttp
import pytest

from sweep.errors import EnvironmentProblem, SweepError, UsageError
from sweep.views.serve import fingerprint, serve_site
from sweep.views.site import SiteReport
from tests.make_records import make_record, write_record, write_records

DAY = date(2026, 3, 1)


def test_fingerprint_sees_new_changed_and_removed_records(tmp_path: Path) -> None:
    path = write_record(tmp_path, f"2.5.3/{DAY}/m.json", make_record("m", day=DAY))
    seen = [fingerprint(tmp_path)]
    assert fingerprint(tmp_path) == seen[0]
    (path.parent / ".m.json.tmp").write_text("half a record")
    assert fingerprint(tmp_path) == seen[0]
    other = write_record(tmp_path, f"2.5.3/{DAY}/n.json", make_record("n", day=DAY))
    seen.append(fingerprint(tmp_path))
    other.write_text(other.read_text() + " ")
    seen.append(fingerprint(tmp_path))
    other.unlink()
    assert len(set(seen)) == 3
    assert fingerprint(tmp_path) == seen[0]


async def test_serves_rebuilds_and_survives_bad_data(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_records(data, 3, 1)
    told: asyncio.Queue[SiteReport | SweepError] = asyncio.Queue()
    async with (
        serve_site(data, title="t", on_rebuilt=told.put_nowait, interval=0.05) as address,
        aiohttp.ClientSession() as client,
    ):
        first = await told.get()
        assert isinstance(first, SiteReport)
        assert first.models == 3
        async with client.get(address) as answer:
            assert answer.status == 200
            assert answer.headers["Cross-Origin-Embedder-Policy"] == "require-corp"
            assert "<main" in await answer.text()
        write_record(data, f"2.5.3/{DAY}/added.json", make_record("added", day=DAY))
        again = await asyncio.wait_for(told.get(), 30)
        assert isinstance(again, SiteReport)
        assert again.models == 4
        async with client.get(f"{address}data/model/added.js") as answer:
            assert answer.status == 200
        # The data directory goes away: said, and the old site stays.
        data.rename(tmp_path / "elsewhere")
        gone = await asyncio.wait_for(told.get(), 30)
        assert isinstance(gone, UsageError)
        async with client.get(f"{address}data/model/added.js") as answer:
            assert answer.status == 200


async def test_answers_only_its_own_host_and_reading(tmp_path: Path) -> None:
    write_records(tmp_path / "data", 1, 1)
    async with (
        serve_site(tmp_path / "data", title="t") as address,
        aiohttp.ClientSession() as client,
    ):
        async with client.get(address, headers={"Host": "evil.example"}) as answer:
            assert answer.status == 403
        async with client.post(address, data=b"x") as answer:
            assert answer.status == 405
        async with client.get(f"{address}..%2f..%2fetc%2fpasswd") as answer:
            assert answer.status in (403, 404)
        port = int(address.rsplit(":", 1)[1].strip("/"))
        with pytest.raises(EnvironmentProblem, match=f"port {port}"):
            async with serve_site(tmp_path / "data", title="t", port=port):
                pass
