export function shout(text) {
  if (!text) throw 'nothing to shout';
  return `${text.toUpperCase()}!`;
}

export async function readPage(url) {
  try {
    const response = await fetch(url, { headers: { 'X-Api-Key': 'of the component' } });
    return await response.text();
  } catch (error) {
    throw `no page: ${error.message ?? error}`;
  }
}
