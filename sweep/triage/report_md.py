"""report.md: a bug report, ready to file."""

from __future__ import annotations

import json

from sweep.triage.findings import Culprit, OperatorRef, Report, Rung


def report_md(report: Report) -> str:
    """The report as Markdown. Text of the model and the runtime is kept in code spans."""
    parts = [
        f"# {_plain(report.headline)}",
        _summary(report),
        _environment(report),
        _steps(report),
        _expected(report),
    ]
    parts += [_culprit(c, i) for i, c in enumerate(report.culprits)]
    parts += [
        _list("Observed", report.observed),
        _list("Inferred", report.inferred),
        _ladder(report),
        _delegation(report),
        _list("Not done", report.notes),
        _console(report),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _summary(report: Report) -> str:
    lines = [
        f"Model `{report.model_id}` ({report.bytes} bytes, {report.operators} operators, sha256 "
        f"`{report.sha256}`), verdict `{report.status}`"
        + (f" / `{report.failure_class}`" if report.failure_class else "")
        + f" on `{report.backend}`.",
    ]
    if not report.complete:
        lines.append("The time budget ended before all steps were done; see *Not done*.")
    return "\n\n".join(lines)


def _environment(report: Report) -> str:
    env = report.env
    adapter = env.webgpu_adapter
    named = (
        " ".join(v for v in (adapter.vendor, adapter.architecture, adapter.device) if v)
        if adapter
        else "none"
    )
    rows = [
        ("@litertjs/core", report.core.version),
        ("wasm file", env.wasm_file or "unknown"),
        ("JSPI", str(env.jspi)),
        ("browser", f"{env.browser} {env.browser_version}"
         + (", headless" if env.headless else "")),
        ("browser flags", " ".join(env.browser_flags or ()) or "none"),
        ("WebGPU adapter", f"{named} ({env.adapter_class})"),
        ("OS", f"{env.os} {env.os_version or ''} {env.arch or ''}".strip()),
        ("CPU", f"{env.cpu or 'unknown'}, {env.cpu_count or '?'} cores"),
        ("reference", report.reference),
        ("litertjs-sweep", env.sweep_version or "unknown"),
        ("date", report.date),
    ]  # fmt: skip
    table = "\n".join(f"| {name} | {_cell(value)} |" for name, value in rows)
    return f"## Environment\n\n| | |\n|---|---|\n{table}"


def _steps(report: Report) -> str:
    if not report.culprits:
        return f"## Steps to reproduce\n\n```\n{report.command}\n```"
    return (
        "## Steps to reproduce\n\n"
        "1. Take `repro.tflite` and the inputs in `inputs/` beside this report.\n"
        f"2. `npm install @litertjs/core@{report.core.version}`, serve the directory and open "
        "`repro.html` (README.md says how), or\n"
        f"3. `litertjs-sweep model repro.tflite --core {report.core.version}`\n\n"
        f"From the whole model: `{report.command}`"
    )


def _expected(report: Report) -> str:
    if not report.culprits:
        return f"## Actual\n\n{_plain(report.reason)}"
    repro = report.culprits[0].repro
    if report.kind == "mismatch":
        expected = f"The outputs in `expected/` ({report.reference})."
    elif report.kind == "failure":
        expected = "The model loads and runs, or is refused with a message that names the operator."
    else:
        expected = "The operator runs on the accelerator."
    return f"## Expected\n\n{expected}\n\n## Actual\n\n`{repro.status}`: {_plain(repro.reason)}"


def _culprit(culprit: Culprit, index: int) -> str:
    repro = culprit.repro
    folder = "" if index == 0 else f"culprit-{index + 1}/"
    lines = [
        f"## {index + 1}. {_plain(culprit.op)} (confidence: {culprit.confidence})",
        f"Confidence {culprit.confidence}: {culprit.confidence_because}.",
        f"Reproducer `{folder}{repro.model}`: {repro.operators} operator(s), {repro.bytes} bytes; "
        f"inputs are {repro.inputs_are}; weights are {repro.constants_are}.",
    ]
    if repro.shrink:
        lines.append("Shrunk: " + "; ".join(repro.shrink) + ".")
    lines += [_operator(o) for o in culprit.operators[:12]]
    if repro.controls:
        rows = "\n".join(
            f"| {c.name} | {_cell(c.changed)} | {c.status} | {_number(c.nrmse)} |"
            for c in repro.controls
        )
        lines.append(
            "Neighbours that were run:\n\n| variant | changed | verdict | normalised RMSE |\n"
            f"|---|---|---|---|\n{rows}"
        )
    return "\n\n".join(lines)


def _operator(operator: OperatorRef) -> str:
    rows = "\n".join(
        f"| {t.role} | {t.index} | {_cell(t.name)} | {t.dtype} | "
        f"{'×'.join(map(str, t.shape)) or 'scalar'} |"
        for t in operator.tensors
    )
    options = json.dumps(operator.options, sort_keys=True)
    return (
        f"Operator {operator.index} `{operator.op}` in the model, options {_code(options)}:\n\n"
        f"| | tensor | name | dtype | shape |\n|---|---|---|---|---|\n{rows}"
    )


def _ladder(report: Report) -> str:
    if report.ladder is None:
        return ""
    rows = "\n".join(
        f"| {r.name} | {r.status} | {_changes(r)} | {_number(r.nrmse)} | {_cell(r.detail)} |"
        for r in report.ladder.rungs
    )
    return (
        f"## Ladder\n\n{report.ladder.statement}\n\n"
        f"| switch | verdict | outcome changes | normalised RMSE | |\n|---|---|---|---|---|\n{rows}"
    )


def _delegation(report: Report) -> str:
    if report.delegation is None:
        return ""
    reasons = "\n".join(f"- {_code(r)}" for r in report.delegation.reasons)
    return f"## Delegation\n\n{report.delegation.statement}\n\n{reasons}".rstrip()


def _list(title: str, lines: tuple[str, ...]) -> str:
    if not lines:
        return ""
    return f"## {title}\n\n" + "\n".join(f"- {_plain(line)}" for line in lines)


def _console(report: Report) -> str:
    if not report.evidence:
        return ""
    text = "\n".join(f"{e.level} ×{e.count}: {e.text}" for e in report.evidence[:40])
    fence = "```"
    while fence in text:
        fence += "`"
    return f"## Console of the whole model\n\n{fence}\n{text}\n{fence}"


def _changes(rung: Rung) -> str:
    return {True: "yes", False: "no", None: "–"}[rung.changes_outcome]


def _number(value: float | None) -> str:
    return f"{value:.3g}" if value is not None else "–"


def _code(text: str) -> str:
    ticks = "`"
    while ticks in text:
        ticks += "`"
    return f"{ticks}{text}{ticks}" if not text.startswith("`") else f"{ticks} {text} {ticks}"


def _cell(text: str) -> str:
    return _plain(text).replace("|", "\\|")


def _plain(text: str) -> str:
    """One line; angle brackets and backslashes do not become markup."""
    return " ".join(text.split()).replace("\\", "\\\\").replace("<", "&lt;")
