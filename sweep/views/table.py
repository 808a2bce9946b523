"""The table of a sweep in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from sweep.env import Environment
from sweep.record import Record, Result

STATUS_STYLE = {
    "pass": "green",
    "fallback": "yellow",
    "unverified": "yellow",
    "output_mismatch": "bold red",
    "run_failed": "red",
    "load_failed": "red",
    "unavailable": "dim",
}


def describe_environment(env: Environment) -> str:
    """`machine · browser version headless · OS · @litertjs/core version`, as cards write it."""
    browser = f"{env.browser} {env.browser_version}{' headless' if env.headless else ''}"
    return " · ".join(
        (env.machine_label, browser, env.os, f"@litertjs/core {env.litertjs_core_version}")
    )


def sweep_table(records: Sequence[Record]) -> Table:
    """Model × backend: status, delegation, match, error and p50."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("Model", "Backend", "Status", "Delegation", "Match", "NRMSE"):
        table.add_column(
            name, no_wrap=name != "Model", overflow="fold", min_width=16 if name == "Model" else 0
        )
    table.add_column("p50 ms", justify="right", no_wrap=True)
    for record in records:
        for index, result in enumerate(record.results):
            table.add_row(
                Text(record.model_id if index == 0 else ""),
                result.backend,
                Text(result.status or "-", style=STATUS_STYLE.get(result.status or "", "")),
                delegation_text(result),
                match_text(result),
                error_text(result),
                latency_text(result),
            )
    return table


def reasons(records: Sequence[Record]) -> list[str]:
    """One line per result that is not a pass: why."""
    return [
        f"{record.model_id} on {result.backend}: {result.status}: {_why(result)}"
        for record in records
        for result in record.results
        if result.status != "pass"
    ]


def delegation_text(result: Result) -> str:
    """Operators on the GPU of all, or what the runtime said as a whole."""
    facts = result.delegation
    if result.backend == "wasm_xnnpack" or not result.loads:
        return "-"
    if facts and facts.ops_on_gpu is not None and facts.ops_on_cpu:
        return f"{facts.ops_on_gpu}/{facts.ops_on_gpu + facts.ops_on_cpu} ops"
    if result.full_delegation is None:
        return "not reported"
    return "full" if result.full_delegation else "partial"


def match_text(result: Result) -> str:
    """The grade of the worst output."""
    if result.grade is None:
        return "-"
    return result.grade


def error_text(result: Result) -> str:
    """The largest normalised RMSE over all comparisons."""
    values = [c.facts.nrmse for c in result.comparisons if c.facts.nrmse is not None]
    return f"{max(values):.1e}" if values else "-"


def latency_text(result: Result) -> str:
    """p50, marked where the adapter is software."""
    if result.latency_p50_ms is None:
        return "-"
    mark = " (sw)" if "software_adapter" in result.flags else ""
    return f"{result.latency_p50_ms:.2f}{mark}"


def _why(result: Result) -> str:
    return next(iter((result.reason or result.error or "").splitlines()), "")[:300]
