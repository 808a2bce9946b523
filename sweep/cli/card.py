"""`litertjs-sweep card`: the browser section of a model card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def card_command(
    model_id: Annotated[str, typer.Argument(help="Model id, as in the catalog.")],
    data: Annotated[Path, typer.Option(help="Records to read.")] = Path("data/sweep"),
    core: Annotated[
        str | None, typer.Option(help="Core version; default: the newest that has the model.")
    ] = None,
    date: Annotated[str | None, typer.Option(help="Date; default: the newest.")] = None,
    leg: Annotated[str, typer.Option(help="Leg of the sweep.")] = "default",
) -> None:
    """Print the "Browser (LiteRT.js)" section of a model card, as markdown."""
    from sweep.store import find_record
    from sweep.views.card import card_section

    stored = find_record(data, model_id, core_version=core, date=date, leg=leg)
    # As a path in the data's own repository: this machine's directories concern nobody.
    source = Path(data.name) / stored.path.relative_to(data)
    if not data.is_absolute() and ".." not in data.parts:
        source = stored.path
    typer.echo(card_section(stored.record, source.as_posix()), nl=False)
