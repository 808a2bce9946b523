// The console as evidence, with the very expressions of sweep/console.py (from settings.js).

/** {evidence, fatal, invalid, gpu, cpu, fallback, unsupported} of [{level, text, stage}]. */
export function readConsole(lines, patterns) {
  const re = Object.fromEntries(Object.entries(patterns).map(([k, v]) => [k, new RegExp(v, 'm')]));
  const all = Object.fromEntries(['glog', 'ansi', 'pointer'].map((k) => [k, new RegExp(patterns[k], 'gm')]));
  const style = new RegExp(patterns.style);
  const normalise = (text) => {
    let clean = text.replace(all.ansi, '');
    if (clean.includes('%c')) clean = clean.replaceAll('%c', '').replace(style, '');
    return clean.replace(all.glog, '$1 ').replace(all.pointer, '0x…').trim();
  };
  const evidence = new Map();
  let loadingFatal = [];
  const facts = {fatal: [], invalid: [], gpu: null, cpu: null, fallback: null, unsupported: []};
  let inBlock = false;
  for (const line of lines) {
    const text = normalise(line.text);
    if (text === '') continue;
    for (const part of text.split('\n')) inBlock = readDelegation(part.trim(), re, facts, inBlock);
    if (re.info.test(text)) continue;
    const fatal = re.fatal.test(text);
    if (fatal) (line.stage === 'load' ? loadingFatal : facts.fatal).push(text);
    if (re.restored.test(text)) loadingFatal = [];
    const invalid = re.gpu_validation.test(text);
    if (invalid) facts.invalid.push(text);
    if (fatal || invalid || re.severe.test(text) || /^(error|warning|pageerror)$/.test(line.level)) {
      const key = `${line.level}\n${text}`;
      const known = evidence.get(key);
      if (known) known.count += 1;
      else evidence.set(key, {level: line.level, text, stage: line.stage, count: 1});
    }
  }
  facts.fatal.unshift(...loadingFatal);
  return {...facts, evidence: [...evidence.values()]};
}

function readDelegation(line, re, facts, inBlock) {
  if (re.unsupported_header.test(line)) return true;
  const split = re.split.exec(line);
  const none = re.none_on_gpu.exec(line);
  if (split || none) {
    const [gpu, cpu] = split ? [Number(split[1]), Number(split[2])] : [0, Number(none[1])];
    facts.gpu = (facts.gpu ?? 0) + gpu;
    facts.cpu = (facts.cpu ?? 0) + cpu;
    facts.fallback ||= cpu > 0;
    return false;
  }
  if (re.partial.test(line)) facts.fallback = true;
  const op = inBlock ? re.unsupported_op.exec(line) : null;
  if (op) facts.unsupported.push({op: op[1], reason: op[2].trim(), tensor: null, count: 1});
  return inBlock;
}
