// Bytes in and out of the page.

class TransportError extends Error {
  constructor(message) {
    super(message);
    this.name = 'TransportError';
  }
}

/**
 * Fetches a whole body; a status that is not 200 is an error, never a body. What the server allows
 * to be kept comes from the browser's cache the second time.
 */
export async function fetchBytes(url) {
  let response;
  try {
    response = await fetch(url);
  } catch (error) {
    throw new TransportError(`fetching failed: ${error.message}`);
  }
  if (!response.ok) throw new TransportError(`the server answered ${response.status}`);
  return new Uint8Array(await response.arrayBuffer());
}

/**
 * Posts raw bytes, wrapped in a Blob: the debugging protocol copies any other request body into its
 * own messages, which costs 20 times the transfer and breaks the driver above some 100 MB.
 */
export async function postBytes(url, bytes) {
  let response;
  try {
    response = await fetch(url, {method: 'POST', body: new Blob([bytes]), cache: 'no-store'});
  } catch (error) {
    throw new TransportError(`posting failed: ${error.message}`);
  }
  if (!response.ok) throw new TransportError(`the server answered ${response.status} to a post`);
}
