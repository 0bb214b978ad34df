// Measures the duration of tools/list: list.mjs URL TOOLS
import assert from 'node:assert/strict';

const [url, expected] = process.argv.slice(2);
const body = JSON.stringify({
    jsonrpc: '2.0',
    id: 1,
    method: 'tools/list',
    params: {
        _meta: {
            'io.modelcontextprotocol/protocolVersion': '2026-07-28',
            'io.modelcontextprotocol/clientInfo': { name: 'bench', version: '1.0.0' },
            'io.modelcontextprotocol/clientCapabilities': {},
        },
    },
});
const headers = {
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    'mcp-protocol-version': '2026-07-28',
    'mcp-method': 'tools/list',
};
const times = [];
let bytes = 0;
for (let round = 0; round < 60; round++) {
    const start = performance.now();
    const text = await (await fetch(url, { method: 'POST', headers, body })).text();
    times.push(performance.now() - start);
    bytes = text.length;
    if (round === 0) assert(JSON.parse(text).result.tools.length >= Number(expected), text.slice(0, 300));
}
times.sort((a, b) => a - b);
console.log(`${`tools/list of ${expected} tools (${(bytes / 1024).toFixed(0)} KB)`.padEnd(58)} ${`${times[30].toFixed(1)} ms`.padStart(16)}   ≤ 10 ms`);
