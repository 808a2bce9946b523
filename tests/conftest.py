from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).parents[1].parent / "shared"


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Real models, truth table and 1.0 records that are kept beside the checkout."""
    if not (SHARED / "truth.tsv").is_file():
        pytest.skip(f"no shared test material at {SHARED}")
    return SHARED
