// The 1.0 input generator: mulberry32, one stream per tensor (sweep/mulberry.py is its twin).

const STREAM_STEP = 1_000_003;

/** Typed array for one input. float32 in [-1, 1), int32 in 0…15, uint8 in 0…255. */
export function makeInput(seed, tensorIndex, shape, dtype) {
  const size = shape.reduce((a, b) => a * b, 1);
  let state = (seed + tensorIndex * STREAM_STEP) >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (t ^ (t >>> 14)) >>> 0;
  };
  switch (dtype) {
    case 'float32': return Float32Array.from({length: size}, () => 2 * (next() / 2 ** 32) - 1);
    case 'int32': return Int32Array.from({length: size}, () => next() >>> 28);
    case 'uint8': return Uint8Array.from({length: size}, () => next() >>> 24);
    default: throw new Error(`inputs of type ${dtype} cannot be made in a browser`);
  }
}

/** Dimensions the model leaves open become 1. */
export const concrete = (shape) => shape.map((d) => (d > 0 ? d : 1));
