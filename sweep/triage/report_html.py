"""report.html: one file, no script, nothing loaded from anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from sweep.triage.findings import Culprit, Report
from sweep.triage.plot import error_plot

_STYLE = """
:root{color-scheme:light dark;--fg:#1b1f24;--muted:#59636e;--bg:#fff;--card:#f6f8fa;--line:#d1d9e0;
--bad:#b3261e;--ok:#1a7f37;--accent:#0550ae}
@media (prefers-color-scheme:dark){:root{--fg:#e6edf3;--muted:#9198a1;--bg:#0d1117;--card:#161b22;
--line:#3d444d;--bad:#ff7b72;--ok:#3fb950;--accent:#79c0ff}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--fg);background:var(--bg);margin:0 auto;
max-width:64rem;padding:1.5rem 1rem 4rem}
h1{font-size:1.45rem;line-height:1.3}h2{font-size:1.15rem;margin-top:2rem}h3{font-size:1rem}
.muted{color:var(--muted)}.card{background:var(--card);border:1px solid var(--line);
border-radius:6px;padding:.75rem 1rem;margin:.75rem 0;overflow-x:auto}
table{border-collapse:collapse;display:block;overflow-x:auto;max-width:100%}
td,th{border:1px solid var(--line);padding:.25rem .6rem;text-align:left;vertical-align:top}
code,pre{font:13px/1.45 ui-monospace,monospace;overflow-wrap:anywhere}
pre{white-space:pre-wrap;background:var(--card);border:1px solid var(--line);padding:.75rem;
border-radius:6px}.badge{border:1px solid currentColor;border-radius:9px;padding:0 .5rem;
font-size:.85rem;white-space:nowrap}.bad{color:var(--bad)}.ok{color:var(--ok)}a{color:var(--accent)}
svg.plot{width:100%;height:auto;display:block}svg .grid{stroke:var(--line);stroke-width:.6}
svg .axis{fill:var(--muted);font:11px system-ui,sans-serif}svg .line{fill:none;stroke:var(--muted);
stroke-width:1}svg .edge{stroke:var(--bad);stroke-dasharray:4 3}svg .ok{fill:var(--ok)}
svg .bad{fill:var(--bad)}svg .cut{fill:none;stroke-width:2}svg .cut.ok{stroke:var(--ok)}
svg .cut.bad{stroke:var(--bad)}
"""


def report_html(report: Report) -> str:
    """The whole report as one page. All text is escaped: names come from model files."""
    boundary = report.culprits[0].node_indices[-1] if report.culprits else None
    plot = error_plot(report.error_along_graph, boundary)
    sections = [
        f"<h1>{escape(report.headline)}</h1>",
        _lead(report),
        _bullets("Observed", report.observed),
        _bullets("Inferred", report.inferred),
    ]
    if plot:
        sections.append(
            "<h2>Error along the graph</h2>"
            '<p class="muted">Normalised RMSE against the reference. Circles: tensors exposed as '
            "further outputs of the whole model; squares: models that end there. Dashed: the first "
            f"culprit.</p><div class='card'>{plot}</div>"
        )
        if report.boundary:
            sections.append(f"<p>{escape(report.boundary)}</p>")
    for index, culprit in enumerate(report.culprits):
        sections.append(_culprit(culprit, index))
    sections += [_outputs(report), _arbitration(report), _ladder(report), _delegation(report)]
    sections += [_bullets("Not done", report.notes), _environment(report), _console(report)]
    title = escape(f"Triage of {report.model_id}")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>{_STYLE}</style></head><body>\n"
        + "\n".join(s for s in sections if s)
        + "\n</body></html>\n"
    )


def _lead(report: Report) -> str:
    bad = report.status in ("load_failed", "run_failed", "output_mismatch")
    badge = f'<span class="badge {"bad" if bad else "ok"}">{escape(report.status)}</span>'
    facts = [
        f"model <code>{escape(report.model_id)}</code>, {report.bytes} bytes, "
        f"{report.operators} operators",
        f"<code>{escape(report.backend)}</code> of core {escape(report.core.version)}",
        f"reproduced: {_yes(report.reproduced)}",
        f"stable: {_yes(report.stable)}",
        f"{report.runs} models run in {report.seconds:g} s"
        + ("" if report.complete else " (the time was up before all was done)"),
    ]
    links = ["report.md", "report.json"]
    if report.culprits:
        links += ["repro.tflite", "repro.html"]
    shown = " · ".join(f'<a href="{name}">{name}</a>' for name in links)
    return f"<p>{badge} {' · '.join(facts)}</p><p>{shown}</p>"


def _culprit(culprit: Culprit, index: int) -> str:
    repro = culprit.repro
    folder = "" if index == 0 else f"culprit-{index + 1}/"
    parts = [
        f"<h2>{index + 1}. {escape(culprit.op)} "
        f'<span class="badge">confidence: {culprit.confidence}</span></h2>',
        f'<p class="muted">{escape(culprit.confidence_because)}.</p>',
        f'<p>Reproducer <a href="{folder}repro.tflite">{folder}repro.tflite</a>: '
        f"{repro.operators} operator(s), {repro.bytes} bytes. Inputs: {escape(repro.inputs_are)}. "
        f"Weights: {escape(repro.constants_are)}."
        + (f" Shrunk: {escape('; '.join(repro.shrink))}." if repro.shrink else "")
        + "</p>",
        "<ul>" + "".join(f"<li>{escape(e)}</li>" for e in culprit.evidence) + "</ul>",
    ]
    for operator in culprit.operators[:12]:
        options = ", ".join(f"{k}: {v}" for k, v in sorted(operator.options.items()))
        parts.append(
            f"<h3>Operator {operator.index} {escape(operator.op)}</h3>"
            f"<p><code>{escape(options) or 'no options'}</code></p>"
            + _table(
                ("", "tensor", "name", "dtype", "shape"),
                [
                    (t.role, str(t.index), t.name, t.dtype, _shape(t.shape))
                    for t in operator.tensors
                ],
            )
        )
    if repro.controls:
        parts.append(
            "<h3>Neighbours that were run</h3>"
            + _table(
                ("variant", "changed", "inputs", "verdict", "normalised RMSE"),
                [
                    (
                        c.name,
                        c.changed,
                        ", ".join(map(_shape, c.input_shapes.values())),
                        c.status,
                        _number(c.nrmse),
                    )
                    for c in repro.controls
                ],
            )
        )
    return "\n".join(parts)


def _outputs(report: Report) -> str:
    if report.reproduction is None or not report.reproduction.outputs:
        return ""
    return "<h2>Outputs of the whole model</h2>" + _table(
        ("output", "shape", "grade", "normalised RMSE", "pattern", "worst element"),
        [
            (o.output, _shape(o.shape), o.error.grade, _number(o.error.nrmse),
             f"{o.pattern}: {o.pattern_evidence}",
             "" if o.worst_index is None
             else f"{list(o.worst_index)}: {o.worst_measured:.6g} instead of "
             f"{o.worst_expected:.6g}")
            for o in report.reproduction.outputs
        ],
    )  # fmt: skip


def _arbitration(report: Report) -> str:
    if report.arbitration is None:
        return ""
    rows = [
        (f"{s.left} – {s.right}", s.agreement, _number(s.nrmse), s.detail)
        for s in report.arbitration.sides
    ]
    return (
        f"<h2>Arbitration</h2><p>{escape(report.arbitration.statement)}</p>"
        + _table(("pair", "", "normalised RMSE", ""), rows)
    )  # fmt: skip


def _ladder(report: Report) -> str:
    if report.ladder is None:
        return ""
    words = {True: "yes", False: "no", None: "–"}
    rows = [
        (r.name, r.status, words[r.changes_outcome], _number(r.nrmse), r.detail)
        for r in report.ladder.rungs
    ]
    return f"<h2>Ladder</h2><p>{escape(report.ladder.statement)}</p>" + _table(
        ("switch", "verdict", "outcome changes", "normalised RMSE", ""), rows
    )


def _delegation(report: Report) -> str:
    if report.delegation is None:
        return ""
    return f"<h2>Delegation</h2><p>{escape(report.delegation.statement)}</p>" + _list(
        report.delegation.reasons
    )


def _environment(report: Report) -> str:
    env = report.env
    rows = [
        (name, str(value))
        for name, value in env.model_dump(mode="json").items()
        if value is not None and name not in ("webgpu_limits", "webgpu_features")
    ]
    rows.append(("reference", report.reference))
    return f"<h2>Environment</h2>{_table(('', ''), rows)}"


def _console(report: Report) -> str:
    if not report.evidence:
        return ""
    text = "\n".join(f"{e.level} ×{e.count}: {e.text}" for e in report.evidence[:60])
    return f"<h2>Console of the whole model</h2><pre>{escape(text)}</pre>"


def _bullets(title: str, lines: tuple[str, ...]) -> str:
    return f"<h2>{title}</h2>{_list(lines)}" if lines else ""


def _list(lines: tuple[str, ...]) -> str:
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    titles = "".join(f"<th>{escape(h)}</th>" for h in head) if any(head) else ""
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table>{f'<tr>{titles}</tr>' if titles else ''}{body}</table>"


def _shape(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "scalar"


def _number(value: float | None) -> str:
    return f"{value:.3g}" if value is not None else "–"


def _yes(value: bool | None) -> str:
    return {True: "yes", False: "no", None: "unknown"}[value]
