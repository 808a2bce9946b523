// Everything one record says, backend by backend.

import {dataTable, facts, h} from './dom.js';
import {errorHistogram} from './histogram.js';
import {BACKEND, badge, bytes, count, ms, number, percent, plural, shareBar, yesNo} from './format.js';

export function recordSections(index, record) {
  return [
    h('div', {class: 'results'}, record.results.map((r) => resultCard(r))),
    operators(record), inputs(record), provenance(record), reproduce(record),
  ];
}

/** One result (schema 2.0) as a card; also of a check in the visitor's own browser. */
export function resultCard(r) {
  const software = r.backend !== 'wasm_xnnpack' && r.env.adapter_class === 'software';
  return h('article', {class: 'card result-card', 'aria-label': BACKEND[r.backend].name},
      h('div', {class: 'card-head'}, h('h3', {}, BACKEND[r.backend].name), r.status && badge(r.status)),
      r.reason && h('p', {class: 'reason'}, r.reason),
      r.error && h('pre', {class: 'error', tabindex: 0}, r.error),
      facts([
        ['Failure class', r.failure_class], ['Cause', r.cause], ['Grade', r.grade],
        ['Verified against', (r.verified_against ?? []).join(', ')],
        ['Fully delegated', yesNo(r.full_delegation)], ['Strict match', yesNo(r.output_match)],
        ['Max abs diff', r.max_abs_diff === null ? null : number(r.max_abs_diff)],
        ['Max rel diff', r.max_rel_diff === null ? null : number(r.max_rel_diff)],
        ['Failed stage', r.failed_stage], ['Confirmed in a fresh page', yesNo(r.confirmed)],
        ['Not reported by this core', (r.not_reported ?? []).join(', ')],
      ]),
      flags(r), latency(r, software), delegation(r), comparisons(r), stability(r), consoleLines(r));
}

function flags(r) {
  return (r.flags ?? []).length > 0 && h('p', {class: 'tags'}, r.flags.map((f) => h('span', {class: 'tag flag'}, f.replaceAll('_', ' '))));
}

function latency(r, software) {
  const l = r.latency;
  if (!l || l.samples_ms.length === 0) return null;
  const peak = Math.max(...l.samples_ms);
  return h('div', {class: 'block'}, h('h4', {}, 'Latency', software && h('span', {class: 'soft'}, 'software adapter')),
      facts([
        ['p50', `${ms(l.p50_ms)} ms`],
        ['99 % interval', l.ci99_low_ms === null ? null : `${ms(l.ci99_low_ms)} – ${ms(l.ci99_high_ms)} ms`],
        ['p90', l.p90_ms === null ? null : `${ms(l.p90_ms)} ms`], ['min', l.min_ms === null ? null : `${ms(l.min_ms)} ms`],
        ['first run', l.first_run_ms === null ? null : `${ms(l.first_run_ms)} ms`],
        ['compile', l.compile_ms === null ? null : `${ms(l.compile_ms)} ms`],
        ['runtime init', l.init_ms === null ? null : `${ms(l.init_ms)} ms`],
        ['load average', l.load_average], ['batch', l.batch === 1 ? null : l.batch],
      ]),
      h('div', {class: 'samples', role: 'img', 'aria-label': `${plural(l.samples_ms.length, 'sample')} from ${ms(Math.min(...l.samples_ms))} to ${ms(peak)} ms`},
          l.samples_ms.slice(0, 200).map((s) => h('span', {title: `${ms(s)} ms`, style: {height: `${100 * s / peak}%`}}))),
      l.noise.length > 0 && h('ul', {class: 'warn'}, l.noise.map((n) => h('li', {}, n))));
}

function delegation(r) {
  const d = r.delegation;
  if (!d) return null;
  const total = (d.ops_on_gpu ?? 0) + (d.ops_on_cpu ?? 0);
  const known = d.ops_on_gpu !== null && d.ops_on_cpu !== null && total > 0;
  if (!known && d.unsupported.length === 0 && d.accelerator === null && d.fully_accelerated === null) return null;
  return h('div', {class: 'block'}, h('h4', {}, 'Delegation'),
      known && h('p', {}, shareBar(d.ops_on_gpu / total), h('span', {class: 'muted'}, ` ${d.ops_on_gpu} operators on the GPU, ${d.ops_on_cpu} on the CPU`)),
      facts([['Runs on', d.accelerator], ['isFullyAccelerated', yesNo(d.fully_accelerated)], ['Partitions', d.partitions]]),
      d.unsupported.length > 0 && dataTable('Operators the GPU delegate refused', ['Operator', 'Why', 'Tensor', 'Count'],
          d.unsupported.map((u) => [h('code', {}, u.op), u.reason, u.tensor ?? '-', u.count])));
}

function comparisons(r) {
  if ((r.comparisons ?? []).length === 0) return null;
  return h('div', {class: 'block'}, h('h4', {}, 'Outputs'), r.comparisons.map((c) => comparison(c)));
}

function comparison(c) {
  const f = c.facts;
  const name = [c.signature, c.output].filter(Boolean).join(' / ');
  const about = `${c.dtype} [${c.shape.join(', ')}] · input set ${c.input_set} · against ${c.against}`;
  return h('details', {class: 'output', open: !c.judgement.match},
      h('summary', {}, h('span', {class: 'mono'}, name), h('span', {class: `grade g-${c.judgement.grade}`}, c.judgement.grade),
          h('span', {class: 'muted'}, `nRMSE ${number(f.nrmse)} · ${about}`)),
      f.problem && h('p', {class: 'reason'}, f.problem),
      h('p', {}, c.judgement.reason),
      f.log_error_histogram.length > 0 && h('figure', {class: 'error-figure'},
          h('figcaption', {class: 'muted'}, 'Elements by |error| ÷ RMS of the reference (square-root scale)'),
          errorHistogram(f.log_error_histogram, `errors of ${name}`)),
      facts([
        ['Worst element', f.worst && `[${f.worst.index.join(', ')}]: ${number(f.worst.measured, 6)} instead of ${number(f.worst.reference, 6)}`],
        ['Max abs', number(f.max_abs)], ['Mean abs', number(f.mean_abs)], ['Max rel', number(f.max_rel)],
        ['Cosine', number(f.cosine, 7)], ['Pearson', number(f.pearson, 7)], ['SNR', f.snr_db === null ? null : `${number(f.snr_db)} dB`],
        ['Outside strict rule', f.strict_outside === null ? null : `${count(f.strict_outside)} of ${count(f.elements)} (${percent(f.strict_outside_fraction)})`],
        ['LSB', f.lsb_max === null ? null : number(f.lsb_max)],
        ['argmax agrees', yesNo(f.argmax_agree)], ['top-5 overlap', f.top5_overlap === null ? null : percent(f.top5_overlap)],
        ['Non-finite', nonFinite(f)], ['Bit-identical', f.identical ? 'yes' : null],
        ['Bound', c.judgement.threshold_nrmse === null ? null : `nRMSE ${number(c.judgement.threshold_nrmse)} (${c.judgement.policy})`],
        ['Noise floor', c.judgement.floor && `kernels ${number(c.judgement.floor.kernel_nrmse)}, ${c.judgement.floor.precision} rounding ${number(c.judgement.floor.perturb_nrmse)}`],
      ]),
      f.batch.length > 1 && dataTable('Error per batch index', ['Index', 'nRMSE', 'Max abs'],
          f.batch.map((b) => [b.index, number(b.nrmse), number(b.max_abs)])));
}

function nonFinite(f) {
  const side = (s) => s.nan + s.pos_inf + s.neg_inf;
  const [a, b] = [side(f.measured), side(f.reference)];
  return a + b === 0 ? null : `${count(a)} measured, ${count(b)} in the reference`;
}

function stability(r) {
  const odd = (r.stability ?? []).filter((s) => s.second_same === false || s.last_same === false);
  return odd.length > 0 && h('div', {class: 'block'}, h('h4', {}, 'Stability'),
      dataTable('Runs on the same input that differ', ['Signature', 'Input set', 'Run 2 as run 1', 'Last as run 1', 'Spread'],
          odd.map((s) => [s.signature || '-', s.input_set, yesNo(s.second_same) ?? '-', yesNo(s.last_same) ?? '-', number(s.spread_max_abs)])));
}

function consoleLines(r) {
  const lines = (r.evidence ?? []).length > 0 ? r.evidence :
      r.delegation_evidence.map((text) => {
        const [, level, rest] = /^(?:(error|warning|log|info): )?(.*)$/s.exec(text);
        return {level: level ?? '', text: rest, stage: null, count: 1};
      });
  const errors = (r.gpu_errors ?? []).map((e) => ({level: 'webgpu', text: `${e.kind}: ${e.message}`, stage: null, count: e.count}));
  const all = [...errors, ...lines];
  if (all.length === 0) return null;
  return h('details', {class: 'block console', open: all.length <= 6}, h('summary', {}, `Console evidence (${plural(all.length, 'line')})`),
      h('ol', {class: 'lines', tabindex: 0}, all.map((l) => h('li', {class: `line l-${/^(error|webgpu)$/.test(l.level) ? 'error' : 'other'}`},
          h('span', {class: 'line-meta'}, [l.level, l.stage, l.count > 1 ? `×${l.count}` : null].filter(Boolean).join(' ')),
          h('code', {}, l.text)))));
}

function operators(record) {
  const list = record.model?.operators ?? [];
  if (list.length === 0) return null;
  const gpu = record.results.filter((r) => r.backend !== 'wasm_xnnpack' && r.delegation);
  const where = (op, r) => {
    const refused = r.delegation.unsupported.filter((u) => u.op === op.op);
    if (!r.runs) return '-';
    if (refused.length > 0) return h('span', {class: 'on-cpu'}, `CPU: ${refused.map((u) => u.reason).join('; ')}`);
    if (r.delegation.accelerator === 'wasm' || r.delegation.ops_on_gpu === 0) return h('span', {class: 'on-cpu'}, 'CPU');
    return r.delegation.ops_on_cpu === 0 || r.full_delegation ? h('span', {class: 'on-gpu'}, 'GPU') :
        h('span', {class: 'muted'}, 'not refused');
  };
  return h('section', {class: 'block', 'aria-label': 'Operators'}, h('h3', {}, 'Operators'),
      dataTable('Operators and where they ran', ['Operator', 'Count', ...gpu.map((r) => BACKEND[r.backend].name)],
          list.map((op) => [h('span', {}, h('code', {}, op.op), op.custom && h('span', {class: 'tag'}, 'custom')), op.count, ...gpu.map((r) => where(op, r))])));
}

function inputs(record) {
  if ((record.inputs ?? []).length === 0) return null;
  return h('section', {class: 'block', 'aria-label': 'Inputs'}, h('h3', {}, 'Inputs'),
      dataTable('Inputs and how they were made', ['Signature', 'Input', 'Type', 'Shape', 'Rule', 'sha256 per set'],
          record.inputs.map((i) => [i.signature || '-', h('code', {}, i.name), i.dtype, `[${i.shape.join(', ')}]`, i.rule,
            h('span', {class: 'mono', title: i.sha256.join('\n')}, i.sha256.map((s) => s.slice(0, 8)).join(' '))])));
}

function provenance(record) {
  const first = record.results[0];
  const env = first.env;
  return h('section', {class: 'block', 'aria-label': 'Provenance'}, h('h3', {}, 'Provenance'), facts([
    ['Provenance', first.provenance === 'example' ? 'example: a synthetic fixture, not a measurement' : first.provenance],
    ['Date', first.date], ['Machine', env.machine_label],
    ['Browser', `${env.browser} ${env.browser_version}${env.headless ? ' headless' : ''}`],
    ['@litertjs/core', env.litertjs_core_version], ['Integrity', record.core?.integrity && h('code', {}, record.core.integrity)],
    ['wasm file', env.wasm_file], ['Model sha256', record.model && h('code', {}, record.model.sha256)],
    ['Model size', record.model && bytes(record.model.bytes)],
    ['Desktop reference', record.desktop && [record.desktop.package, record.desktop.version, record.desktop.status].filter(Boolean).join(' ')],
    ['Desktop agrees with', record.agrees_with], ['Imported from', record.imported_from && `schema ${record.imported_from}`],
    ['Notes', record.notes],
  ]), h('p', {}, saveButton(record)));
}

/** The record itself, saved from what the page has read. */
function saveButton(record) {
  return h('button', {type: 'button', class: 'quiet', onclick: () => {
    const url = URL.createObjectURL(new Blob([`${JSON.stringify(record, null, 2)}\n`], {type: 'application/json'}));
    h('a', {href: url, download: `${record.model_id}.json`}).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  }}, 'Save the record as JSON');
}

/** The command that measures this again. Every word is quoted for a POSIX shell. */
export function reproduceCommand(record) {
  const c = record.config;
  const env = record.results[0].env;
  const words = ['litertjs-sweep', 'model', '--core', env.litertjs_core_version];
  const leg = c.leg?.name ?? 'default';
  if (leg !== 'default') words.push('--leg', leg);
  words.push('--warmup', c.warmup_runs, '--runs', c.timed_runs, '--seed', c.input_seed);
  if (c.input_sets !== null && c.input_sets !== undefined) words.push('--input-sets', c.input_sets);
  if (c.input_generator === '1.0' || record.imported_from === '1.0') words.push('--input-generator', '1.0');
  if (c.tolerance_policy) words.push('--tolerance-policy', c.tolerance_policy);
  // `--`: a source from a stranger's catalog may look like an option.
  words.push('--', record.source);
  return words.map((w) => quote(String(w))).join(' ');
}

function quote(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

function reproduce(record) {
  return h('section', {class: 'block', 'aria-label': 'Reproduce'}, h('h3', {}, 'Measure it again'),
      h('pre', {class: 'command', tabindex: 0}, reproduceCommand(record)));
}
