// The matrix: one row per model × backend × rig.

import {h, replace} from './dom.js';
import {load} from './data.js';
import {href, replaceAddress} from './query.js';
import {loadRelease, loadView, latencyKind} from './view.js';
import {activeFilters, change, filterBar, predicate, readFilters} from './filters.js';
import {virtualTable} from './table.js';
import {BACKEND, STATUS, badge, count, ms, plural, shareBar, sweepName} from './format.js';

const ARROW = {
  regression: ['▼', 'regression'], improvement: ['▲', 'improvement'],
  failure_class: ['≈', 'fails otherwise'], unclear: ['?', 'unclear'], unavailable: ['·', 'not measured'],
};

export async function matrixPage(index, route, main) {
  if (index.rows.model.length === 0) {
    replace(main, h('div', {class: 'title'}, h('h1', {}, 'Matrix')), badFiles(index),
        h('div', {class: 'empty'}, h('p', {}, 'There are no records yet.'),
            h('p', {}, 'Sweep some models with ', h('code', {}, 'litertjs-sweep run'), ', then build the site again.')));
    return {title: 'Matrix'};
  }
  let filters = readFilters(route.query);
  let sort = readSort(route.query.get('sort'));
  let view = await loadView(index, filters.sweep);
  let old = filters.since ? await loadRelease(index, filters.since) : null;
  let history = null;

  const tokens = h('div', {class: 'tokens'});
  const result = h('p', {class: 'result', role: 'status', 'aria-live': 'polite'});
  const cards = h('div', {class: 'cards'});
  const holder = h('div', {class: 'holder'});
  const bar = h('div', {});
  let table = null;

  const address = () => href(['matrix'], {
    ...filters, status: filters.status, sort: sort ? `${sort.desc ? '-' : ''}${sort.id}` : '',
  });

  async function onChange(changes, redraw = false) {
    const before = filters;
    filters = {...filters, ...changes};
    if (filters.sweep !== before.sweep) view = await loadView(index, filters.sweep);
    if (filters.since !== before.since) {
      old = filters.since ? await loadRelease(index, filters.since) : null;
      makeTable();
    }
    if (redraw) replace(bar, filterBar(index, filters, onChange));
    show();
  }

  function makeTable() {
    table?.destroy();
    table = virtualTable({
      label: 'Results: models by backends',
      columns: columns(index, () => view, () => old, () => history, filters.since),
      onSort: (id, descending) => {
        sort = {id, desc: descending};
        show();
      },
    });
    replace(holder, table.element);
  }

  function show() {
    const keep = predicate(index, view, filters, old);
    const rows = view.rows.filter(keep);
    const anyStatus = predicate(index, view, {...filters, status: []}, old);
    replace(cards, summaryCards(index, view, view.rows.filter(anyStatus), filters, onChange));
    activeFilters(tokens, filters, onChange);
    replace(result, `${count(rows.length)} of ${plural(view.rows.length, 'result')}`);
    table.update(rows, sort);
    replaceAddress(address());
  }

  replace(bar, filterBar(index, filters, onChange));
  replace(main,
      h('div', {class: 'title'}, h('h1', {}, 'Matrix'),
          h('p', {class: 'lead'}, [
            plural(index.models.id.length, 'model'), plural(index.sweeps.length, 'sweep'),
            plural(new Set(index.sweeps.map((s) => s.core)).size, 'release'),
            plural(index.rigs.length, 'rig'),
          ].join(' · '))),
      badFiles(index), cards, bar,
      h('div', {class: 'bar'}, result, tokens, copyLink()), holder);
  makeTable();
  show();
  performance.mark('matrix-drawn');
  // The history strips come after the first paint.
  load('history').then((data) => {
    history = {lines: data.status, sweeps: sweepsOfRigs(index, data.status)};
    if (table) table.update(table.order(), sort, {keepScroll: true});
  });
  return {title: 'Matrix', destroy: () => table?.destroy()};
}

function readSort(text) {
  return text ? {id: text.replace(/^-/, ''), desc: text.startsWith('-')} : {id: 'model', desc: false};
}

function copyLink() {
  const button = h('button', {type: 'button', class: 'quiet', onclick: async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      replace(button, 'Copied');
    } catch {
      replace(button, 'Copy the address bar');
    }
    setTimeout(() => replace(button, 'Copy link'), 2000);
  }}, 'Copy link');
  return button;
}

function badFiles(index) {
  if (index.bad.length === 0) return null;
  return h('details', {class: 'notice'},
      h('summary', {}, `${plural(index.bad.length, 'file')} among the records could not be read`),
      h('ul', {}, index.bad.map((b) => h('li', {}, h('code', {}, b.path), ' ', b.problem))));
}

/** Per backend a bar of its statuses; each part of the legend is a filter. */
function summaryCards(index, view, rows, filters, onChange) {
  const order = index.statuses.map((_, n) => n).reverse();
  return index.backends.map((name, backend) => {
    const tally = new Array(index.statuses.length).fill(0);
    for (const row of rows) if (Number(index.rows.backend[row]) === backend) tally[view.status[row]] += 1;
    const total = tally.reduce((a, b) => a + b, 0);
    if (total === 0) return null;
    const parts = order.filter((n) => tally[n] > 0);
    return h('section', {class: 'card', 'aria-label': BACKEND[name].name},
        h('div', {class: 'card-head'}, h('h2', {}, BACKEND[name].name),
            h('span', {class: 'muted'}, BACKEND[name].detail),
            h('span', {class: 'rate'}, `${Math.floor(100 * tally[index.statuses.indexOf('pass')] / total)} %`,
                h('small', {}, ' pass'))),
        h('div', {class: 'stack', 'aria-hidden': 'true'}, parts.map((n) => h('span', {
          class: `part s-${index.statuses[n]}`, style: {'flex-grow': tally[n]},
        }))),
        h('div', {class: 'legend'}, parts.map((n) => {
          const status = index.statuses[n];
          const on = filters.status.includes(status) && (!filters.backend || filters.backend === name);
          return h('button', {
            type: 'button', class: `chip s-${status}`, 'aria-pressed': String(on), title: STATUS[status].hint,
            onclick: () => onChange({
              status: on ? filters.status.filter((s) => s !== status) : [...new Set([...filters.status, status])],
            }, true),
          }, h('span', {class: 'glyph', 'aria-hidden': 'true'}, STATUS[status].glyph),
          STATUS[status].text, h('b', {}, count(tally[n])));
        })));
  });
}

function columns(index, view, old, history, since) {
  const {model, backend} = index.rows;
  const id = (row) => index.models.id[model[row]];
  const backendOf = (row) => index.backends[backend[row]];
  const kind = (row) => latencyKind(index, backendOf(row), view().env[row]);
  const p50 = (wanted) => (row) => ((kind(row) === 'software') === wanted ? view().p50[row] ?? undefined : undefined);
  const anySoftware = index.envs.some((e) => e.kind === 'software');
  const list = [
    {
      id: 'model', label: 'Model', width: '21%', value: id,
      cell: (row) => h('div', {class: 'model'},
          h('a', {href: href(['model', id(row)]), title: id(row)}, id(row)),
          h('span', {class: 'tags'}, index.models.tags[model[row]].slice(0, 3).map((t) => h('span', {class: 'tag'}, index.tags[t])))),
    },
    {
      id: 'backend', label: 'Backend', width: '6.5rem', value: backendOf,
      cell: (row) => h('span', {class: `backend b-${BACKEND[backendOf(row)].short}`}, BACKEND[backendOf(row)].short),
    },
    {
      id: 'status', label: 'Status', width: '12rem', value: (row) => view().status[row],
      hint: 'sorted by seriousness',
      cell: (row) => [badge(index.statuses[view().status[row]]),
        view().example[row] === 1 && h('span', {class: 'tag example', title: 'a synthetic fixture, not a measurement'}, 'example'),
        view().class[row] >= 0 && h('div', {class: 'sub'}, index.classes[view().class[row]])],
    },
  ];
  if (since) {
    list.push({
      id: 'change', label: `Since ${since}`, width: '9.5rem',
      value: (row) => Object.keys(ARROW).indexOf(change(index, view(), old(), row)),
      cell: (row) => {
        const how = change(index, view(), old(), row);
        const [arrow, word] = ARROW[how] ?? ['', ''];
        const browser = old().env[row] !== view().env[row];
        return [h('span', {class: `change c-${how}`}, arrow, ' ', word),
          h('div', {class: 'sub'}, 'was ', STATUS[index.statuses[old().status[row]]].text,
              browser && h('span', {title: 'the browser or the system changed too'}, ' *'))];
      },
    });
  }
  list.push({
    id: 'history', label: 'History', width: '9rem', sortable: false,
    cell: (row) => strip(index, history(), row),
  }, {
    id: 'share', label: 'On GPU', width: '8.5rem', numeric: true, value: (row) => view().share[row] ?? undefined,
    hint: 'share of operators on the GPU', cell: (row) => shareBar(view().share[row]),
  }, {
    id: 'grade', label: 'Grade', width: '6rem',
    value: (row) => (view().grade[row] < 0 ? undefined : view().grade[row]),
    hint: 'how well the values agree, best first',
    cell: (row) => (view().grade[row] < 0 ? h('span', {class: 'none'}, '-') :
        h('span', {class: `grade g-${index.grades[view().grade[row]]}`}, index.grades[view().grade[row]])),
  }, {
    id: 'p50', label: 'p50 ms', width: '5.5rem', numeric: true, value: p50(false),
    hint: 'median of one inference with readback, on the CPU or on a hardware adapter',
    cell: (row) => h('span', {class: 'num'}, kind(row) === 'software' ? '' : ms(view().p50[row])),
  });
  if (anySoftware) {
    list.push({
      id: 'p50soft', label: 'p50 software', width: '7.5rem', numeric: true, value: p50(true),
      hint: 'WebGPU rendered on the CPU: never to be compared with hardware',
      cell: (row) => (kind(row) === 'software' && view().p50[row] !== null ?
        h('span', {class: 'num soft', title: 'software adapter: not comparable with hardware'}, ms(view().p50[row])) : ''),
    });
  }
  list.push({
    id: 'env', label: 'Environment', width: '26%', value: (row) => index.envs[view().env[row]].label,
    cell: (row) => {
      const sweep = index.sweeps[view().sweep[row]];
      const env = index.envs[view().env[row]];
      return h('div', {class: 'env', title: env.label}, h('span', {}, env.machine),
          h('span', {class: 'sub'}, `${env.browser.replace(/(\d+)(\.\d+)+.*/, '$1')} · core ${sweep.core} · ${sweep.date}`));
    },
  });
  return list;
}

/** Per rig, the sweeps it took part in. */
function sweepsOfRigs(index, history) {
  const found = index.rigs.map(() => new Set());
  history.forEach((line, n) => {
    for (let row = 0; row < line.length; row++) if (line[row] !== '.') found[index.rows.rig[row]].add(n);
  });
  return found.map((set) => [...set].slice(-MARKS));
}

const MARKS = 24;

/** One mark per sweep of this rig, oldest left; sweeps that left the model out show a gap. */
function strip(index, history, row) {
  if (!history) return '';
  const marks = history.sweeps[index.rows.rig[row]].map((n) => {
    const code = history.lines[n][row];
    return {status: code === '.' ? null : index.statuses[Number(code)], name: sweepName(index.sweeps[n])};
  });
  const told = marks.filter((m) => m.status).slice(-6)
      .map((m) => `${m.name} ${STATUS[m.status].text}`).join(', ');
  return h('span', {class: 'strip', role: 'img', 'aria-label': `history: ${told}`}, marks.map((m) => h('span', {
    class: m.status ? `mark s-${m.status}` : 'mark',
    title: m.status ? `${m.name}: ${STATUS[m.status].text}` : `${m.name}: not swept`,
  })));
}
