// Before anything else in the frame: what the runtime says goes to the page that judges it.

for (const level of ['log', 'info', 'debug', 'warn', 'error']) {
  const original = console[level].bind(console);
  console[level] = (...parts) => {
    parent.litertCheck.line(level === 'warn' ? 'warning' : level, parts.map(String).join(' '));
    // Kept out of the visitor's console at the level of errors: most of it is the runtime's INFO.
    (level === 'error' ? console.debugOriginal ?? original : original)(...parts);
  };
  if (level === 'debug') console.debugOriginal = original;
}
addEventListener('error', (event) => parent.litertCheck.line('pageerror', event.message));
