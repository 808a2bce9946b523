// The frame of the dashboard: header, theme, and which page the address asks for.

import {h, replace} from './dom.js';
import {load} from './data.js';
import {href, readRoute} from './query.js';
import {count, plural} from './format.js';
import {themeButton} from './theme.js';
import {matrixPage} from './matrix.js';
import {modelPage} from './model.js';
import {releasePage} from './release.js';
import {environmentsPage} from './environments.js';
import {triagePage} from './triage.js';

const PAGES = {
  matrix: matrixPage, model: modelPage, release: releasePage, environments: environmentsPage,
  triage: triagePage,
};
const NAVIGATION = [
  ['matrix', 'Matrix'], ['release', 'Releases'], ['environments', 'Environments'], ['triage', 'Triage'],
];

const main = document.getElementById('main');
let current = null;
let turn = 0;

async function show(index, first) {
  const mine = ++turn;
  const route = readRoute();
  const name = route.path[0] ?? 'matrix';
  markNavigation(name);
  current?.destroy?.();
  current = null;
  try {
    const page = PAGES[name];
    if (!page) throw new Error(`there is no page “${name}”`);
    const made = await page(index, route, main);
    if (mine !== turn) return made.destroy?.();
    current = made;
    document.title = `${made.title} · ${index.title}`;
  } catch (error) {
    if (mine !== turn) return;
    replace(main, h('h1', {}, 'Not found'), h('p', {}, `This page cannot be shown: ${error.message}.`),
        h('p', {}, h('a', {href: href(['matrix'])}, 'Back to the matrix')));
    document.title = `Not found · ${index.title}`;
  }
  if (!first) {
    scrollTo(0, 0);
    main.focus({preventScroll: true});
  }
}

function markNavigation(name) {
  for (const link of document.querySelectorAll('.top nav a')) {
    const here = link.dataset.page === name || (name === 'model' && link.dataset.page === 'matrix');
    if (here) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
}

function frame(index) {
  replace(document.getElementById('top'),
      h('a', {class: 'brand', href: href([])}, mark(), h('span', {}, index.title)),
      h('nav', {'aria-label': 'Pages'}, NAVIGATION.map(([page, label]) => h('a', {
        href: href([page]), 'data-page': page,
      }, label)),
      index.check && h('a', {href: 'check/index.html', class: 'cta'}, 'Check your model')),
      themeButton());
  replace(document.getElementById('bottom'),
      h('span', {}, `${plural(index.records, 'record')} of ${plural(index.models.id.length, 'model')}, ${count(index.rows.model.length)} rows`),
      h('span', {}, 'Every number is shown with the environment it was measured in.'),
      h('a', {href: 'assets/THIRD-PARTY.txt'}, 'Licences of libraries'));
}

function mark() {
  return h('img', {src: 'favicon.svg', alt: '', width: 26, height: 26});
}

load('index').then((index) => {
  frame(index);
  addEventListener('hashchange', () => show(index, false));
  return show(index, true);
}).catch((error) => replace(main, h('h1', {}, 'No data'), h('p', {role: 'alert'}, error.message)));
