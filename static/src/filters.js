// The filters of the matrix: their controls, and the predicate they make.

import {h, replace} from './dom.js';
import {list} from './query.js';
import {BACKEND, sweepName} from './format.js';
import {transition} from './transition.js';

/** Names in the address; several values only where marked. */
export function readFilters(query) {
  const get = (name) => query.get(name) ?? '';
  return {
    q: get('q'), sweep: get('sweep'), since: get('since'), backend: get('backend'),
    status: list(get('status')), failure: get('failure'), op: get('op'), tag: get('tag'),
    env: get('env'),
  };
}

/** Row → boolean. `old` holds the statuses of the release to compare with, if any. */
export function predicate(index, view, filters, old) {
  const words = filters.q.toLowerCase().split(/\s+/).filter(Boolean);
  const statuses = new Set(filters.status.map((s) => index.statuses.indexOf(s)));
  const backend = index.backends.indexOf(filters.backend);
  const failure = index.classes.indexOf(filters.failure);
  const op = index.operators.indexOf(filters.op);
  const tag = index.tags.indexOf(filters.tag);
  const {model, backend: backends} = index.rows;
  const ids = index.models.id;
  return (row) => {
    const m = model[row];
    if (filters.backend && Number(backends[row]) !== backend) return false;
    if (statuses.size > 0 && !statuses.has(view.status[row])) return false;
    if (filters.failure && (failure < 0 || view.class[row] !== failure)) return false;
    if (filters.env && index.envs[view.env[row]].label !== filters.env) return false;
    if (filters.op && !index.models.ops[m].includes(op)) return false;
    if (filters.tag && !index.models.tags[m].includes(tag)) return false;
    if (words.length > 0 && !words.every((w) => ids[m].includes(w))) return false;
    if (old && change(index, view, old, row) === 'same') return false;
    return true;
  };
}

/** How a row differs from the release compared with; 'same' where that one has no result. */
export function change(index, view, old, row) {
  if (old.status[row] < 0) return 'same';
  return transition(index, old, view, row);
}

export function filterBar(index, filters, onChange) {
  const select = (name, label, options, first) => {
    const known = options.some(([value]) => value === filters[name]);
    return h('div', {class: 'field'}, h('label', {for: `filter-${name}`}, label),
        h('select', {name, id: `filter-${name}`, onchange: (e) => onChange({[name]: e.target.value})},
            h('option', {value: '', selected: filters[name] === ''}, first),
            filters[name] && !known && h('option', {value: filters[name], selected: true}, filters[name]),
            options.map(([value, text]) => h('option', {value, selected: value === filters[name]}, text))));
  };
  const same = (values) => values.map((value) => [value, value]);
  const cores = [...new Set(index.sweeps.map((s) => s.core))].reverse();
  let timer = 0;
  const search = h('input', {
    type: 'search', name: 'q', id: 'filter-q', value: filters.q, placeholder: 'Model id…', autocomplete: 'off',
    spellcheck: 'false',
    oninput: (e) => {
      clearTimeout(timer);
      timer = setTimeout(() => onChange({q: e.target.value.trim()}), 80);
    },
  });
  const sweeps = [...index.sweeps].reverse().map((s) => [sweepName(s), `${s.core} · ${s.date}`]);
  return h('form', {class: 'filters', role: 'search', onsubmit: (e) => e.preventDefault()},
      h('div', {class: 'field wide'}, h('label', {for: 'filter-q'}, 'Search'), search),
      select('sweep', 'Sweep', sweeps, 'newest of each model'),
      select('since', 'Changed since', same(cores), 'any release'),
      select('backend', 'Backend', index.backends.map((b) => [b, BACKEND[b].name]), 'all'),
      select('failure', 'Failure class', same(index.classes), 'any'),
      select('op', 'Operator', same(index.operators), 'any'),
      select('tag', 'Tag', same(index.tags), 'any'),
      select('env', 'Environment', same([...new Set(index.envs.map((e) => e.label))]), 'all'));
}

/** Tokens of what is filtered by, each of which can be taken away. */
export function activeFilters(element, filters, onChange) {
  const words = {
    q: 'id contains', sweep: 'sweep', since: 'changed since', backend: 'backend',
    failure: 'class', op: 'operator', tag: 'tag', env: 'environment',
  };
  const tokens = Object.entries(words).filter(([name]) => filters[name] !== '')
      .map(([name, word]) => [`${word} ${filters[name]}`, {[name]: ''}]);
  for (const status of filters.status) {
    tokens.push([`status ${status}`, {status: filters.status.filter((s) => s !== status)}]);
  }
  const nothing = {...Object.fromEntries(Object.keys(words).map((name) => [name, ''])), status: []};
  return replace(element, tokens.map(([text, without]) => h('button', {
    type: 'button', class: 'token', 'aria-label': `remove the filter: ${text}`,
    onclick: () => onChange(without, true),
  }, text, h('span', {'aria-hidden': 'true'}, '×'))),
  tokens.length > 1 && h('button', {
    type: 'button', class: 'quiet', onclick: () => onChange(nothing, true),
  }, 'Clear all'));
}
