// Calls one echo server directly and through gateways, in turns, and prints what they add beside the goals.
// client.mjs DIRECT NAME=URL[,TOOL]...: `rest` is called as POST /tools/{name}/execute, all
// others over MCP: `sessionless` in the form of 2026-07-28, the rest in sessions.
import assert from 'node:assert/strict';
import { Agent, request } from 'node:http';

// Many short rounds: the machine's speed changes from second to second, and each round compares its own calls.
const ROUNDS = 30;
const CALLS = 300;
const CALLS_BEFORE = 1_500;

const [direct, ...others] = process.argv.slice(2);
const targets = [['direct', direct, 'echo'], ...others.map((other) => {
    const [name, rest] = other.split(/=(.*)/s);
    return [name, ...rest.split(',')];
})];

const agent = new Agent({ keepAlive: true });

// Not the SDK's client: it adds a listener to one signal with every request, and becomes slower and slower.
function post(url, headers, body) {
    return new Promise((resolve, reject) => {
        const sent = request(url, { method: 'POST', agent, headers: { 'content-type': 'application/json', ...headers } });
        sent.on('error', reject);
        sent.on('response', (response) => {
            let text = '';
            response.setEncoding('utf8').on('data', (part) => (text += part));
            response.on('end', () => resolve({ response, text })).on('error', reject);
        });
        sent.end(JSON.stringify(body));
    });
}

// The message of a response: its JSON, or the last event of its stream.
function message({ response, text }) {
    if (response.headers['content-type']?.startsWith('application/json')) return JSON.parse(text);
    return JSON.parse(text.slice(text.lastIndexOf('data:') + 5).split('\n', 1)[0]);
}

async function mcp(url, tool) {
    const headers = { accept: 'application/json, text/event-stream' };
    let id = 0;
    const ask = (method, params) => post(url, headers, { jsonrpc: '2.0', id: ++id, method, params });
    const begun = await ask('initialize', {
        protocolVersion: '2025-11-25',
        capabilities: {},
        clientInfo: { name: 'bench', version: '1.0.0' },
    });
    headers['mcp-protocol-version'] = message(begun).result.protocolVersion;
    const session = begun.response.headers['mcp-session-id'];
    if (session) headers['mcp-session-id'] = session;
    await post(url, headers, { jsonrpc: '2.0', method: 'notifications/initialized' });
    return async (text) => {
        const called = message(await ask('tools/call', { name: tool, arguments: { text } }));
        assert.equal(called.result.content[0].text, text);
    };
}

// The newer revision has no session.
async function sessionless(url, tool) {
    const headers = {
        accept: 'application/json, text/event-stream',
        'mcp-protocol-version': '2026-07-28',
        'mcp-method': 'tools/call',
        'mcp-name': tool,
    };
    const _meta = {
        'io.modelcontextprotocol/protocolVersion': '2026-07-28',
        'io.modelcontextprotocol/clientInfo': { name: 'bench', version: '1.0.0' },
        'io.modelcontextprotocol/clientCapabilities': {},
    };
    let id = 0;
    return async (text) => {
        const params = { name: tool, arguments: { text }, _meta };
        const called = message(await post(url, headers, { jsonrpc: '2.0', id: ++id, method: 'tools/call', params }));
        assert.equal(called.result.content[0].text, text);
    };
}

async function rest(url, tool) {
    return async (text) => {
        const answered = await post(`${url}/tools/${tool}/execute`, {}, { arguments: { text } });
        assert.equal(JSON.parse(answered.text).text, text);
    };
}

const kinds = { rest, sessionless };

// The median duration of a call in milliseconds, and calls per second, with concurrent callers.
async function measure(call, callers, count = CALLS) {
    const times = [];
    const began = performance.now();
    let left = count;
    const caller = async () => {
        while (left-- > 0) {
            const start = performance.now();
            await call('something short to say again');
            times.push(performance.now() - start);
        }
    };
    await Promise.all(Array.from({ length: callers }, caller));
    const seconds = (performance.now() - began) / 1_000;
    times.sort((a, b) => a - b);
    return { p50: times[Math.floor(times.length / 2)], rate: times.length / seconds };
}

const median = (values) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];
const row = (what, measured, goal = '') => console.log(`${what.padEnd(58)} ${measured.padStart(16)}   ${goal}`);

const calls = new Map();
for (const [name, url, tool] of targets) {
    calls.set(name, await (kinds[name] ?? mcp)(url, tool));
}
// Warms up before the measurement.
for (const call of calls.values()) await measure(call, 8, CALLS_BEFORE);

for (const callers of [1, 8]) {
    const seen = new Map(targets.map(([name]) => [name, []]));
    for (let round = 0; round < ROUNDS; round++) {
        for (const [name, call] of calls) seen.get(name).push(await measure(call, callers));
    }
    const base = seen.get('direct');
    row(`MCP echo, directly, ${callers} at once`, `${median(base.map(({ p50 }) => p50)).toFixed(3)} ms`, `${median(base.map(({ rate }) => rate)).toFixed(0)}/s`);
    for (const [name, rounds] of seen) {
        if (name === 'direct') continue;
        const isOurs = name !== 'mcp-proxy';
        // Compared with the direct calls of the same round, because other load of the machine affects both.
        const added = median(rounds.map(({ p50 }, round) => p50 - base[round].p50));
        const kept = median(rounds.map(({ rate }, round) => rate / base[round].rate));
        if (callers === 1) row(`  through ${name}, added`, `${added.toFixed(3)} ms`, isOurs ? '≤ 0.25 ms' : '');
        else row(`  through ${name}, requests a second kept`, `${(100 * kept).toFixed(0)} %`, isOurs ? '≥ 60 %' : '');
    }
}
process.exit(0);
