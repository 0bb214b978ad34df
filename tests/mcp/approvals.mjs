// The client of approvals.py that is of the official TypeScript SDK: approvals.mjs URL KEY KEY_OF_APPROVER MODE REVISION
import assert from 'node:assert/strict';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const [url, key, approver, mode, revision] = process.argv.slice(2);
const payment = (amount) => ({ name: 'bank__pay', arguments: { to: `Zoë 関所 ${mode}`, amount } });
const authorized = (as) => ({ Authorization: `Bearer ${as}`, 'Content-Type': 'application/json' });

async function connect(capabilities, openPage) {
    const client = new Client({ name: 'test', version: '1.0.0' }, { capabilities, versionNegotiation: { mode } });
    if (openPage) client.setRequestHandler('elicitation/create', openPage);
    const requestInit = { headers: authorized(key) };
    await client.connect(new StreamableHTTPClientTransport(new URL(`${url}/mcp`), { requestInit }));
    return client;
}

/** As an approver does, whose key is not the client's. */
async function decide(approval, decision) {
    const body = JSON.stringify({ reason: 'for rent' });
    const request = { method: 'POST', headers: authorized(approver), body };
    const decided = await fetch(`${url}/approvals/${approval}/${decision}`, request);
    assert.equal(decided.status, 200, await decided.text());
}

async function decideWhenItWaits(approval, decision) {
    for (;;) {
        const metrics = await fetch(`${url}/metrics`, { headers: authorized(key) });
        if (/^shannon_approval_waiters 1$/m.test(await metrics.text())) break;
        await new Promise((resolve) => setTimeout(resolve, 50));
    }
    await decide(approval, decision);
}

// A client that opens pages for its user.
let decision = 'approve';
const opened = [];
const opens = await connect({ elicitation: { url: {} } }, async ({ params }) => {
    opened.push(decideWhenItWaits(params.url.split('/console/approvals/')[1], decision));
    return { action: 'accept' };
});
const paid = await opens.callTool(payment(1.5));
assert(!paid.isError && paid.content[0].text.includes('receipt'), JSON.stringify(paid));
decision = 'deny';
const denied = await opens.callTool(payment(2));
assert(denied.isError && denied.content[0].text.includes('denied this call (for rent)'), JSON.stringify(denied));
assert.equal(denied.structuredContent.error_info.code, 'approval_denied');
await Promise.all(opened);
assert.equal(opened.length, 2);

// One that opens none calls again.
const opensNone = await connect({});
const refused = await opensNone.callTool(payment(3));
const { code, approval } = refused.structuredContent.error_info;
assert(refused.isError && code === 'approval_required', JSON.stringify(refused));
await decide(approval.id, 'approve');
const again = await opensNone.callTool(payment(3));
assert(!again.isError, JSON.stringify(again));

assert.equal(opens.getNegotiatedProtocolVersion(), revision);
console.log(`TypeScript SDK, ${revision}: passed`);
await Promise.all([opens.close(), opensNone.close()]);
