// How a verdict changed: the rules of sweep/releases/diff.py, which a test holds these against.

const NOT_MEASURED = new Set(['fetch_failed', 'checksum_mismatch']);
const FAILED = new Set(['load_failed', 'run_failed']);

/** `regression`, `improvement`, `failure_class`, `unclear`, `unavailable` or `same`, of one row. */
export function transition(index, old, now, row) {
  const side = (from) => ({
    rank: from.status[row], status: index.statuses[from.status[row]],
    failure: from.class[row] < 0 ? null : index.classes[from.class[row]], file: from.file[row], basis: from.basis[row],
  });
  const [a, b] = [side(old), side(now)];
  if (a.rank === b.rank) return a.failure && b.failure && a.failure !== b.failure ? 'failure_class' : 'same';
  if ([a, b].some((s) => s.status === 'unavailable' || NOT_MEASURED.has(s.failure))) return 'unavailable';
  const otherModel = a.file >= 0 && b.file >= 0 && a.file !== b.file;
  if ([a, b].some((s) => s.status === 'unclassified') || otherModel) return 'unclear';
  const has = (status) => a.status === status || b.status === status;
  const failed = FAILED.has(a.status) || FAILED.has(b.status);
  if (!failed && (has('unverified') || (a.basis !== b.basis && has('output_mismatch')))) return 'unclear';
  return b.rank < a.rank ? 'regression' : 'improvement';
}
