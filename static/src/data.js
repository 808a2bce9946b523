// Data files are scripts that call `sweepData(key, json)`: this works from file: addresses too.

const values = new Map();
const waiting = new Map();

globalThis.sweepData = (key, text) => {
  const value = JSON.parse(text);
  values.set(key, value);
  waiting.get(key)?.resolve(value);
};

/** The value of one data file, read once. Rejects when the file is missing or broken. */
export function load(key) {
  if (values.has(key)) return Promise.resolve(values.get(key));
  const known = waiting.get(key);
  if (known) return known.promise;
  const entry = Promise.withResolvers ? Promise.withResolvers() : withResolvers();
  waiting.set(key, entry);
  const tag = PRELOADED.has(key) ? null : document.createElement('script');
  if (tag) {
    tag.src = address(key);
    tag.addEventListener('error', () => {
      waiting.delete(key);
      entry.reject(new Error(`the data file ${tag.getAttribute('src')} could not be read`));
    });
    tag.addEventListener('load', () => {
      if (!values.has(key)) entry.reject(new Error(`the data file of ${key} is broken`));
      tag.remove();
    });
    document.head.append(tag);
  }
  return entry.promise;
}

/** Files that index.html names itself, so that they are fetched beside this script. */
const PRELOADED = new Set(['index', 'latest']);

addEventListener('load', () => {
  for (const key of PRELOADED) {
    if (!values.has(key)) waiting.get(key)?.reject(new Error(`the data file ${address(key)} could not be read`));
  }
});

export function address(key) {
  return `data/${key.split('/').map(encodeURIComponent).join('/')}.js`;
}

function withResolvers() {
  const entry = {};
  entry.promise = new Promise((resolve, reject) => Object.assign(entry, {resolve, reject}));
  return entry;
}
