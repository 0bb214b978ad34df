// Uses replicas behind a load balancer without stickiness through the official TypeScript SDK:
// mcp_sessions.mjs URL ADMIN_KEY REGISTRATION. Prints the id of one session, waits until its replica was killed (a line on
// standard input), and goes on with a new session.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import readline from 'node:readline';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const [url, admin, registration] = process.argv.slice(2);
const headers = { 'X-API-Key': 'key-of-ann' };

async function connect() {
    const transport = new StreamableHTTPClientTransport(new URL(`${url}/mcp`), { requestInit: { headers } });
    const client = new Client({ name: 'test', version: '1.0.0' }, {});
    await client.connect(transport);
    return { client, transport };
}

async function calculate(client, number) {
    const called = await client.callTool({ name: 'calculator', arguments: { expression: `${number}*2` } });
    assert.equal(called.content[0].text, `${number * 2}`);
}

const sessions = await Promise.all(Array.from({ length: 9 }, connect));
const owners = new Set(sessions.map(({ transport }) => transport.sessionId.split('.')[0]));
assert.equal(owners.size, 3, 'each replica has some of the sessions');
const changed = sessions.map(({ client }) => new Promise((resolve) => {
    client.setNotificationHandler('notifications/tools/list_changed', resolve);
}));

await Promise.all(sessions.map(async ({ client }, at) => {
    for (let round = 0; round < 30; round += 1) {
        await calculate(client, at * 100 + round);
        if (round % 10 === 0) assert((await client.listTools()).tools.some((tool) => tool.name === 'calculator'));
    }
}));
console.error('9 sessions at 3 replicas: 270 calls and 27 lists through the load balancer');

const registered = await fetch(`${url}/tools/openapi/register`, {
    method: 'POST',
    headers: { 'X-API-Key': admin, 'Content-Type': 'application/json' },
    body: registration,
});
assert.equal(registered.status, 200, await registered.text());
await Promise.all(changed);
for (const { client } of sessions) {
    assert((await client.listTools()).tools.some((tool) => tool.name.startsWith('effects__')));
}
console.error('list_changed reached all 9 clients');

const owner = sessions[0].transport.sessionId.split('.')[0];
console.log(owner);
await once(readline.createInterface({ input: process.stdin }), 'line');
const statuses = new Set();
const end = Date.now() + 60_000;
for (const session of sessions) {
    const isKilled = session.transport.sessionId.startsWith(owner);
    for (;;) {
        try {
            await calculate(session.client, 21);
            break;
        } catch (error) {
            assert(isKilled && Date.now() < end, error);
            const status = error.status ?? error.code ?? error.data?.status;
            statuses.add(status);
            if (`${status} ${error.message}`.includes('404')) {
                Object.assign(session, await connect());
                assert(!session.transport.sessionId.startsWith(owner));
            } else {
                await new Promise((resolve) => setTimeout(resolve, 200));
            }
        }
    }
}
console.error(`sessions of the killed replica began anew, the others went on; errors before: ${[...statuses].join(', ')}`);
await Promise.all(sessions.map(({ client }) => client.close()));
process.exit(0);
