// A client of the official TypeScript SDK that signs its user in, calls, and goes on when its access token has expired: broker_client.mjs URL
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client, StreamableHTTPClientTransport, UnauthorizedError } from '@modelcontextprotocol/client';

const url = new URL(process.argv[2]);
// Longer than an access token lasts, with what the gateway allows for clocks that differ.
const pause = 35_000;

// Where the browser comes back to.
const server = createServer((_, response) => response.end('Signed in.')).listen(0, '127.0.0.1');
await once(server, 'listening');
const redirectUrl = `http://127.0.0.1:${server.address().port}/callback`;
const cameBack = once(server, 'request').then(([request]) => new URL(request.url, redirectUrl).searchParams);

const state = randomUUID();
const kept = { given: 0 };
const authProvider = {
    redirectUrl,
    clientMetadata: {
        client_name: 'TypeScript SDK',
        redirect_uris: [redirectUrl],
        grant_types: ['authorization_code', 'refresh_token'],
        response_types: ['code'],
        token_endpoint_auth_method: 'none',
    },
    state: () => state,
    clientInformation: () => kept.client,
    saveClientInformation: (client) => { kept.client = client; },
    tokens: () => kept.tokens,
    saveTokens: (tokens) => { kept.tokens = tokens; kept.given += 1; },
    redirectToAuthorization: (address) => console.log(address.href),
    saveCodeVerifier: (verifier) => { kept.verifier = verifier; },
    codeVerifier: () => kept.verifier,
    saveDiscoveryState: (found) => { kept.found = found; },
    discoveryState: () => kept.found,
};

const connected = async () => {
    const client = new Client({ name: 'test', version: '1.0.0' });
    const transport = new StreamableHTTPClientTransport(url, { authProvider });
    try {
        await client.connect(transport);
        return client;
    } catch (error) {
        assert(error instanceof UnauthorizedError, error);
        const answer = await cameBack;
        assert.equal(answer.get('state'), state);
        await transport.finishAuth(answer);
        return undefined;
    }
};
const client = (await connected()) ?? (await connected());
const { tools } = await client.listTools();
assert(tools.some((tool) => tool.name === 'calculator'));
for (const wait of [0, pause]) {
    await sleep(wait);
    const called = await client.callTool({ name: 'calculator', arguments: { expression: '6*7' } });
    assert.equal(called.content[0].text, '42');
}
assert(kept.given >= 2, `tokens were given ${kept.given} times`);
console.log('called as a user');
await client.close();
server.close();
process.exit(0);
