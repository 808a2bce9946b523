// The diff report of two releases (sweep/releases/diff.py), rig by rig: what the index cannot tell.

import {dataTable, h} from './dom.js';
import {href} from './query.js';
import {BACKEND, badge, count, ms, number, percent, plural, yesNo} from './format.js';

export function diffReport(index, report) {
  return report.rigs.map(({rig, diff}) => {
    const parts = [latency(index, diff), delegation(index, diff), numerics(index, diff), reasons(index, diff), siblings(index, diff), outcomes(index, diff), notComparable(index, diff)].filter(Boolean);
    return h('section', {class: 'block', 'aria-label': `Details in ${index.rigs[rig].label}`},
        h('h2', {}, 'In detail: ', h('span', {class: 'muted'}, index.rigs[rig].label)),
        h('p', {class: 'muted'}, `${plural(diff.compared, 'result')} on both sides, ${count(diff.unchanged)} with the same verdict.${notReported(diff)}`),
        parts.length > 0 ? parts : h('p', {}, 'Latency, delegation and numbers did not change.'));
  });
}

function notReported(diff) {
  const side = (label, names) => (names.length > 0 ? ` ${label} does not report ${names.join(', ')}.` : '');
  return side(diff.old_label, diff.old_not_reported) + side(diff.new_label, diff.new_not_reported);
}

const place = (index, x) => [
  index.models.id.includes(x.model_id) ? h('a', {href: href(['model', x.model_id])}, x.model_id) : x.model_id,
  h('span', {}, BACKEND[x.backend].short, x.leg && x.leg !== 'default' && h('span', {class: 'sub'}, `leg ${x.leg}`)),
];

const part = (title, headers, rows) => rows.length > 0 && h('div', {class: 'block'}, h('h3', {}, title, h('span', {class: 'muted'}, ` ${count(rows.length)}`)), dataTable(title, headers, rows));

function latency(index, diff) {
  return part('Latency', ['Model', 'Backend', 'Verdict', 'p50 ms before', 'p50 ms after', 'Ratio (99 % interval)', 'Samples', 'p'], diff.latency.map((d) => {
    const c = d.change;
    return [...place(index, d),
      h('span', {class: `change ${c.verdict === 'slower' ? 'c-regression' : 'c-improvement'}`, title: c.reason}, c.verdict, d.software && h('span', {class: 'soft'}, 'software adapter')),
      ms(c.old_median_ms), ms(c.new_median_ms), `${number(c.ratio)} (${number(c.ratio_low)} – ${number(c.ratio_high)})`, `${c.old_samples} / ${c.new_samples}`, number(c.p_value)];
  }));
}

function delegation(index, diff) {
  const split = (gpu, cpu, full) => (gpu === null || cpu === null ? yesNo(full) === null ? 'not reported' : full ? 'full' : 'partial' : `${percent(gpu / (gpu + cpu))} (${gpu} of ${gpu + cpu})`);
  return part('Delegation to the GPU', ['Model', 'Backend', 'Before', 'After', 'Newly supported', 'Newly refused'], diff.delegation.map((d) => [
    ...place(index, d), split(d.old_ops_on_gpu, d.old_ops_on_cpu, d.old_full), split(d.new_ops_on_gpu, d.new_ops_on_cpu, d.new_full),
    h('code', {}, d.newly_supported.join(', ') || '-'), h('code', {}, d.newly_unsupported.join(', ') || '-')]));
}

function numerics(index, diff) {
  return part('Numbers', ['Model', 'Backend', 'Change', 'Grade before', 'Grade after', 'SNR dB before', 'SNR dB after'], diff.numerics.map((d) => [
    ...place(index, d), h('span', {class: `change ${d.better ? 'c-improvement' : 'c-regression'}`}, d.better ? 'closer' : 'further off'),
    h('span', {class: `grade g-${d.old_grade}`}, d.old_grade), h('span', {class: `grade g-${d.new_grade}`}, d.new_grade), number(d.old_snr_db), number(d.new_snr_db)]));
}

function reasons(index, diff) {
  const state = (status, failure) => (status ? h('span', {}, badge(status), failure && h('span', {class: 'sub'}, failure)) : '-');
  return part('Verdicts, with their reasons', ['Model', 'Backend', 'Change', 'Before', 'After', 'Reason', 'What else differs'],
      diff.statuses.filter((d) => d.kind !== 'new' && d.kind !== 'gone').map((d) => [
        ...place(index, d), h('span', {class: `change c-${d.kind}`}, d.kind.replace('_', ' ')), state(d.old, d.old_failure_class), state(d.new, d.new_failure_class),
        d.reason ?? '-', d.differs.join('; ') || 'nothing']));
}

function siblings(index, diff) {
  return part('Variants that fall behind their parent', ['Model', 'Backend', 'Parent', 'Status', 'Parent’s status', 'Latency'], diff.siblings.map((s) => [
    ...place(index, s), s.parent, s.status ? badge(s.status) : '-', s.parent_status ? badge(s.parent_status) : '-', s.latency?.reason ?? '-']));
}

function outcomes(index, diff) {
  const rows = diff.outcomes;
  const told = (value) => yesNo(value) ?? 'not reported';
  return rows.length > 0 && h('details', {class: 'block'}, h('summary', {}, `Outcome by core version, build, JSPI and threads (${plural(rows.length, 'row')})`),
      dataTable('Outcomes by build', ['Model', 'Backend', 'Core', 'wasm file', 'JSPI', 'Threads', 'Outcome'], rows.map((o) => [
        ...place(index, o), o.core_version, o.wasm_file ?? 'not reported', told(o.jspi), o.threads ?? 'not reported',
        o.status ? h('span', {}, badge(o.status), o.failure_class && h('span', {class: 'sub'}, o.failure_class)) : '-'])));
}

function notComparable(index, diff) {
  const rows = diff.latency_not_comparable;
  return rows.length > 0 && h('details', {class: 'block'}, h('summary', {}, `Latency that cannot be compared (${plural(rows.length, 'result')})`),
      dataTable('Latency that cannot be compared', ['Model', 'Backend', 'Why'], rows.map((d) => [...place(index, d), d.change.reason])));
}
