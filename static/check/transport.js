// Bytes in and out of the harness, here without any network: they stay in the page around it.

/** Bytes of `memory:<name>`: a copy, and an array of this frame, which the runtime insists on. */
export async function fetchBytes(url) {
  return new Uint8Array(parent.litertCheck.read(url));
}

/** Hands bytes to the page around; copied, since the harness may free what it holds. */
export async function postBytes(url, bytes) {
  parent.litertCheck.write(url, bytes.slice());
}
