"""`litertjs-sweep inspect`: what a model file says of itself, and what a sweep would feed it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from sweep.inputs import InputPlan
    from sweep.model import ModelFacts, SignatureFacts, TensorFacts


def inspect_command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A .tflite file.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the facts as JSON, nothing else.")
    ] = False,
) -> None:
    """Show inputs, outputs, signatures, operators and weights of a model, without running it."""
    from sweep.inputs import plan_inputs
    from sweep.model import inspect_model

    path = Path(model)
    facts = inspect_model(path)
    plan = plan_inputs(path, facts)
    if as_json:
        typer.echo(json.dumps(_as_json(facts, plan), indent=2, sort_keys=True))
    else:
        _print(path, facts, plan)


def _as_json(facts: ModelFacts, plan: InputPlan) -> dict[str, object]:
    """The record's model facts, and beside them the plan of the inputs."""
    return {
        "model": facts.model_dump(mode="json"),
        "inputs": [
            {
                "signature": item.signature,
                "name": item.name,
                "dtype": item.dtype,
                "shape": item.shape,
                "rule": item.rule,
                "drawable": item.drawable,
            }
            for item in plan.items
        ],
    }


def _print(path: Path, facts: ModelFacts, plan: InputPlan) -> None:
    console = Console(highlight=False)
    console.print(f"[bold]{_safe(str(path))}[/]  {facts.bytes:,} bytes", soft_wrap=True)
    console.print(f"sha256 {facts.sha256}", soft_wrap=True)
    if facts.description:
        console.print(f"description: {_safe(facts.description)}", soft_wrap=True)
    rules = {(item.signature, item.name): item.rule for item in plan.items}
    for signature in facts.signatures:
        console.print(_signature_table(signature, rules))
    table = Table("operator", "count", title=f"operators in {facts.subgraphs} subgraph(s)")
    for entry in facts.operators:
        custom = " [yellow](custom)[/]" if entry.custom else ""
        table.add_row(_safe(entry.op) + custom, str(entry.count))
    console.print(table)
    weights = ", ".join(f"{dtype} {size:,}" for dtype, size in facts.weight_dtypes.items())
    console.print(f"bytes of weights: {weights or 'none'}", soft_wrap=True)
    console.print(f"metadata: {_safe(', '.join(facts.metadata)) or 'none'}", soft_wrap=True)


def _signature_table(signature: SignatureFacts, rules: dict[tuple[str, str], str]) -> Table:
    title = f"signature {_safe(signature.key)}" if signature.key else "no signature (subgraph 0)"
    table = Table("", "name", "dtype", "shape", "quantization", "drawn by default", title=title)
    for tensor in signature.inputs:
        rule = rules.get((signature.key, tensor.name), "")
        table.add_row("in", *_cells(tensor), _safe(rule))
    for tensor in signature.outputs:
        table.add_row("out", *_cells(tensor), "")
    return table


def _cells(tensor: TensorFacts) -> tuple[str, str, str, str]:
    shape = "×".join(map(str, tensor.shape)) or "scalar"
    if tensor.shape_signature is not None and tensor.shape_signature != tensor.shape:
        shape += f" (dynamic: {'×'.join(map(str, tensor.shape_signature))})"
    return _safe(tensor.name), tensor.dtype, shape, _quantization(tensor)


def _quantization(tensor: TensorFacts) -> str:
    quantization = tensor.quantization
    if quantization is None:
        return ""
    if len(quantization.scale) > 1:
        return f"per channel, axis {quantization.dimension}"
    zero: Iterable[int] = quantization.zero_point or (0,)
    return f"{quantization.scale[0]:.6g} · (q − {next(iter(zero))})"


def _safe(text: str) -> str:
    """Text of an untrusted file for a terminal: no control characters, no markup."""
    return escape("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text))
