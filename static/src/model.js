// The page of one model: its state, its history, and everything one record says.

import {dataTable, facts, h, replace, safeLink} from './dom.js';
import {load} from './data.js';
import {href, replaceAddress} from './query.js';
import {latencyKind} from './view.js';
import {latencyChart} from './charts.js';
import {recordSections} from './record.js';
import {BACKEND, STATUS, badge, bytes, ms, shareBar, sweepName} from './format.js';

const PANELS = [
  ['cpu', 'Latency on WebAssembly', '(CPU)'],
  ['hardware', 'Latency on hardware adapters', '(GPU or NPU)'],
  ['software', 'Latency on software adapters', '(rendered on the CPU: never to be compared with hardware)'],
  ['unknown', 'Latency, adapter not recorded', ''],
];

export async function modelPage(index, route, main) {
  const id = route.path[1] ?? '';
  if (!index.models.id.includes(id)) throw new Error(`there is no model ${id} in these records`);
  const model = await load(`model/${id}`);
  const entries = model.history.map((values) => Object.fromEntries(model.columns.map((c, n) => [c, values[n]])));
  const wanted = route.query.get('record');
  const newest = entries.reduce((a, b) => (b.sweep >= a.sweep ? b : a)).dir;
  const charts = latencyCharts(index, entries);
  const detail = h('div', {class: 'record', id: 'record'});
  const picker = h('div', {});

  async function choose(place, byUser) {
    const at = Math.max(model.places.indexOf(place), 0);
    replace(picker, recordPicker(model, at, (p) => choose(p, true)));
    const record = await load(`record/${model.places[at]}`);
    replace(detail, recordSections(index, record));
    grid.mark(at);
    if (byUser) {
      const query = at === newest ? {} : {record: model.places[at]};
      replaceAddress(href(['model', id], query));
      detail.scrollIntoView({block: 'nearest'});
    }
  }

  const grid = historyGrid(index, model, entries, (place) => choose(place, true));
  replace(main,
      h('nav', {class: 'crumbs', 'aria-label': 'Breadcrumb'}, h('a', {href: href(['matrix'])}, 'Matrix'), ' / ', id),
      heading(index, model),
      h('div', {class: 'now'}, latestCards(index, entries)),
      h('section', {'aria-labelledby': 'h-history'}, h('h2', {id: 'h-history'}, 'History'), grid.element,
          h('div', {class: 'charts'}, charts.map((c) => c.element))),
      h('section', {'aria-labelledby': 'h-record'}, h('div', {class: 'section-head'}, h('h2', {id: 'h-record'}, 'Record'), picker), detail));
  await choose(wanted && model.places.includes(wanted) ? wanted : model.places[newest], false);
  return {title: id, destroy: () => charts.forEach((c) => c.destroy())};
}

function heading(index, model) {
  return h('div', {class: 'title'}, h('h1', {class: 'mono'}, model.id),
      h('p', {class: 'tags'}, model.tags.map((t) => h('a', {class: 'tag', href: href(['matrix'], {tag: t})}, t))),
      h('div', {class: 'about'}, facts([
        ['Source', safeLink(model.source)], ['Licence', model.license], ['Size', bytes(model.bytes)],
        ['Variant of', model.variant_of && (index.models.id.includes(model.variant_of) ?
          h('a', {href: href(['model', model.variant_of])}, model.variant_of) : model.variant_of)],
        ['Triage', index.triage.some((t) => t.model === model.id) &&
          h('a', {href: `triage/${encodeURIComponent(model.id)}/report.html`}, 'report')],
        ['Notes', model.notes],
      ])));
}

function newestPerRow(entries) {
  const rows = new Map();
  for (const entry of entries) rows.set(entry.row, entry);
  return [...rows.values()];
}

function latestCards(index, entries) {
  return newestPerRow(entries).map((e) => {
    const backend = index.backends[index.rows.backend[e.row]];
    const soft = latencyKind(index, backend, e.env) === 'software';
    const sweep = index.sweeps[e.sweep];
    return h('article', {class: 'card'},
        h('div', {class: 'card-head'}, h('h2', {}, BACKEND[backend].name), badge(index.statuses[e.status]),
            e.example === 1 && h('span', {class: 'tag'}, 'example')),
        h('div', {class: 'figures'},
            figure('p50', h('span', {}, ms(e.p50), e.p50 !== null && h('small', {}, ' ms')), soft && e.p50 !== null && 'software adapter'),
            figure('grade', e.grade === null ? '-' : index.grades[e.grade]),
            backend !== 'wasm_xnnpack' && figure('on GPU', shareBar(e.share)),
            e.class !== null && figure('failure class', index.classes[e.class])),
        h('p', {class: 'sub'}, `${index.envs[e.env].label} · @litertjs/core ${sweep.core} · ${sweep.date}`));
  });
}

const figure = (name, value, note) => h('div', {class: 'figure'}, h('span', {class: 'figure-name'}, name),
    h('span', {class: 'figure-value'}, value), note && h('span', {class: 'soft'}, note));

/** Rows: backend × rig; columns: sweeps; each cell opens its record. */
function historyGrid(index, model, entries, choose) {
  const sweeps = [...new Set(entries.map((e) => e.sweep))].sort((a, b) => a - b);
  const rows = [...new Set(entries.map((e) => e.row))];
  const cells = [];
  const row = (n) => {
    const backend = index.backends[index.rows.backend[n]];
    return h('tr', {}, h('th', {scope: 'row'}, BACKEND[backend].short, h('span', {class: 'sub'}, index.rigs[index.rows.rig[n]].label)),
        sweeps.map((s) => {
          const e = entries.find((x) => x.row === n && x.sweep === s);
          if (!e) return h('td', {class: 'gap'}, h('span', {class: 'hidden'}, 'not swept'));
          const {text, glyph} = STATUS[index.statuses[e.status]];
          const button = h('button', {
            type: 'button', class: `cell s-${index.statuses[e.status]}`, title: text,
            'aria-label': `${BACKEND[backend].short} ${sweepName(index.sweeps[s])}: ${text}`,
            onclick: () => choose(model.places[e.dir]),
          }, glyph);
          cells.push([e.dir, button]);
          return h('td', {}, button);
        }));
  };
  const element = h('div', {class: 'scroll', tabindex: 0, role: 'group', 'aria-label': 'Status over sweeps'},
      h('table', {class: 'history'}, h('caption', {class: 'hidden'}, 'Status over sweeps'),
          h('thead', {}, h('tr', {}, h('td', {}), sweeps.map((s) => h('th', {scope: 'col'}, index.sweeps[s].core, h('span', {class: 'sub'}, index.sweeps[s].date.slice(2)))))),
          h('tbody', {}, rows.map(row))));
  return {
    element,
    mark(dir) {
      for (const [at, button] of cells) button.setAttribute('aria-pressed', String(at === dir));
    },
  };
}

function latencyCharts(index, entries) {
  return PANELS.map(([kind, title, note]) => {
    const series = new Map();
    for (const e of entries) {
      const backend = index.backends[index.rows.backend[e.row]];
      const its = latencyKind(index, backend, e.env);
      if ((its === 'none' ? 'unknown' : its) !== kind || e.p50 === null) continue;
      const label = `${BACKEND[backend].short} · ${index.rigs[index.rows.rig[e.row]].label}`;
      if (!series.has(e.row)) series.set(e.row, {label, points: new Map()});
      series.get(e.row).points.set(e.sweep, {
        p50: e.p50, low: e.low, high: e.high, env: e.env, envLabel: index.envs[e.env].label,
      });
    }
    if (series.size === 0) return null;
    return latencyChart({title, note, sweeps: index.sweeps, series: [...series.values()]});
  }).filter(Boolean);
}

function recordPicker(model, at, choose) {
  return h('div', {class: 'field inline'}, h('label', {for: 'record-sweep'}, 'Sweep'),
      h('select', {id: 'record-sweep', onchange: (e) => choose(e.target.value)}, [...model.places].reverse().map((place) => h('option', {
        value: place, selected: place === model.places[at],
      }, place.split('/').slice(0, -1).join(' · ')))));
}

