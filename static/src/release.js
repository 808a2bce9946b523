// What changed between two core versions, row by row, in equal rigs only.

import {dataTable, h, replace} from './dom.js';
import {load} from './data.js';
import {href, replaceAddress} from './query.js';
import {transition} from './transition.js';
import {loadRelease, latencyKind} from './view.js';
import {diffReport} from './diff.js';
import {BACKEND, badge, count, ms, percent, plural} from './format.js';

const GROUPS = [
  ['regression', 'Regressions', '▼'], ['improvement', 'Improvements', '▲'],
  ['failure_class', 'Fail for another reason', '≈'], ['unclear', 'Unclear', '?'], ['unavailable', 'Not measured on one side', '·'],
];

export async function releasePage(index, route, main) {
  const cores = [...new Set(index.sweeps.map((s) => s.core))];
  if (cores.length === 0) throw new Error('there are no records');
  const to = route.path[1] ?? cores.at(-1);
  if (!cores.includes(to)) throw new Error(`there is no sweep of @litertjs/core ${to} in these records`);
  const before = cores[Math.max(cores.indexOf(to) - 1, 0)];
  const asked = route.query.get('from');
  const from = cores.includes(asked) ? asked : before;
  const body = h('div', {});
  const picker = (label, value, href_) => h('div', {class: 'field inline'}, h('label', {for: `release-${label}`}, label),
      h('select', {id: `release-${label}`, onchange: (e) => { location.hash = href_(e.target.value); }}, [...cores].reverse().map((c) => h('option', {value: c, selected: c === value}, c))));
  replace(main,
      h('div', {class: 'title'}, h('h1', {}, `Release ${to}`),
          h('p', {class: 'lead'}, `@litertjs/core ${to} against ${from}: the newest result of each model, backend and rig on either side.`),
          h('div', {class: 'bar'},
              picker('Release', to, (v) => href(['release', v])),
              picker('against', from, (v) => href(['release', to], {from: v})))),
      body);
  if (from === to) {
    replace(body, h('div', {class: 'empty'}, h('p', {}, 'There is no earlier release in these records to compare with.')));
    return {title: `Release ${to}`};
  }
  const written = index.diffs.find((d) => d.old === from && d.new === to);
  const [a, b, report] = await Promise.all([
    loadRelease(index, from), loadRelease(index, to), written ? load(written.key) : null,
  ]);
  replace(body, comparison(index, a, b, from, to), report && diffReport(index, report));
  if (!asked) replaceAddress(href(['release', to], {from}));
  return {title: `Release ${to}`};
}

function comparison(index, a, b, from, to) {
  const found = new Map(GROUPS.map(([name]) => [name, []]));
  const only = {old: 0, new: 0};
  let same = 0;
  for (let row = 0; row < index.rows.model.length; row++) {
    if (a.status[row] < 0 && b.status[row] < 0) continue;
    if (a.status[row] < 0) only.new += 1;
    else if (b.status[row] < 0) only.old += 1;
    else {
      const how = transition(index, a, b, row);
      if (how === 'same') same += 1;
      else found.get(how).push(row);
    }
  }
  const tiles = [
    ...GROUPS.map(([name, title, arrow]) => [title, found.get(name).length, `c-${name}`, arrow]),
    ['Unchanged', same, '', '='], [`Only in ${to}`, only.new, '', '+'], [`Only in ${from}`, only.old, '', '−'],
  ];
  return h('div', {},
      h('div', {class: 'tiles'}, tiles.map(([title, n, style, arrow]) => h('div', {class: `tile ${style}`},
          h('span', {class: 'tile-value'}, h('span', {'aria-hidden': 'true'}, arrow, ' '), count(n)), h('span', {class: 'muted'}, title)))),
      GROUPS.map(([name, title]) => group(index, title, found.get(name), a, b, from, to)),
      outcomes(index, a, b, from, to));
}

const SHOWN = 200;

function group(index, title, rows, a, b, from, to) {
  if (rows.length === 0) return null;
  return h('section', {class: 'block', 'aria-label': title}, h('h2', {}, title, h('span', {class: 'muted'}, ` ${count(rows.length)}`)),
      dataTable(title, ['Model', 'Backend', from, to, `On GPU ${to}`, `p50 ms ${to}`, 'Environment'], rows.slice(0, SHOWN).map((row) => {
        const backend = index.backends[index.rows.backend[row]];
        const id = index.models.id[index.rows.model[row]];
        const soft = latencyKind(index, backend, b.env[row]) === 'software';
        const state = (side) => h('span', {}, badge(index.statuses[side.status[row]]),
            side.class[row] >= 0 && h('span', {class: 'sub'}, index.classes[side.class[row]]));
        return [h('a', {href: href(['model', id])}, id), BACKEND[backend].short, state(a), state(b),
          percent(b.share[row]), h('span', {class: soft ? 'soft' : ''}, ms(b.p50[row])),
          h('span', {class: 'sub'}, index.envs[b.env[row]].label, a.env[row] !== b.env[row] &&
            h('em', {title: `before: ${index.envs[a.env[row]].label}`}, ' (differs)'))];
      })),
      rows.length > SHOWN && h('p', {}, h('a', {href: href(['matrix'], {since: from})},
          `All ${plural(rows.length, 'row')} are in the matrix, filtered by “changed since ${from}”`)));
}

/** Statuses before × after, per backend: where results moved. */
function outcomes(index, a, b, from, to) {
  return h('section', {class: 'block', 'aria-label': 'All transitions'}, h('h2', {}, 'All transitions'),
      h('div', {class: 'crosses'}, index.backends.map((name, backend) => {
        const cells = new Map();
        for (let row = 0; row < index.rows.model.length; row++) {
          if (Number(index.rows.backend[row]) !== backend || a.status[row] < 0 || b.status[row] < 0) continue;
          const key = `${a.status[row]}>${b.status[row]}`;
          cells.set(key, (cells.get(key) ?? 0) + 1);
        }
        if (cells.size === 0) return null;
        const used = (side) => index.statuses.map((_, n) => n).filter((n) => [...cells.keys()].some((k) => Number(k.split('>')[side]) === n)).reverse();
        const [befores, afters] = [used(0), used(1)];
        return h('figure', {class: 'cross'}, h('figcaption', {}, h('strong', {}, BACKEND[name].name)),
            dataTable(`${BACKEND[name].name}: ${from} against ${to}`, [h('span', {class: 'muted'}, `${from} ↓ ${to} →`), ...afters.map((n) => badge(index.statuses[n]))],
                befores.map((n) => [badge(index.statuses[n]), ...afters.map((m) => {
                  const c = cells.get(`${n}>${m}`);
                  return c ? h('span', {class: n === m ? 'num muted' : 'num strong'}, count(c)) : '';
                })])));
      })));
}
