// Triage reports: each is a page of its own, made by `litertjs-sweep triage`.

import {h, replace} from './dom.js';
import {href} from './query.js';
import {plural} from './format.js';

export async function triagePage(index, route, main) {
  replace(main, h('div', {class: 'title'}, h('h1', {}, 'Triage reports'),
      h('p', {class: 'lead'}, 'From a wrong output to the smallest model that shows it: error along the graph, the culprit, a reproducer.')),
  index.triage.length === 0 ?
      h('div', {class: 'empty'}, h('p', {}, 'No triage report was built into this site.'),
          h('p', {}, 'Make one with ', h('code', {}, 'litertjs-sweep triage MODEL'), ', then build the site again with ', h('code', {}, '--triage DIR'), '.')) :
      h('div', {class: 'stacked'}, index.triage.map((report) => card(report))));
  return {title: 'Triage reports'};
}

function card(report) {
  const base = `triage/${encodeURIComponent(report.model)}/`;
  return h('article', {class: 'card'},
      h('div', {class: 'card-head'}, h('h2', {}, report.model), report.backend && h('span', {class: 'muted'}, report.backend)),
      report.headline && h('p', {}, report.headline),
      report.culprits.length > 0 && h('ul', {}, report.culprits.map((c) => h('li', {}, h('strong', {}, c)))),
      h('p', {class: 'links'},
          h('a', {class: 'token', href: `${base}report.html`}, 'Report'),
          report.files.map((file) => h('a', {class: 'token', href: `${base}${file.split('/').map(encodeURIComponent).join('/')}`}, file)),
          h('a', {class: 'token', href: href(['model', report.model])}, 'Model')),
      report.files.length === 0 && h('p', {class: 'muted'}, plural(0, 'further file')));
}
