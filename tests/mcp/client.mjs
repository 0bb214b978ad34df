// Uses sekisho through the official TypeScript SDK, over HTTP in both forms and over standard input and output:
// lists, calls, hears progress, and takes a call back: client.mjs URL SEKISHO CONFIG
import assert from 'node:assert/strict';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const [url, sekisho, config] = process.argv.slice(2);
const http = () => new StreamableHTTPClientTransport(new URL(url));
const stdio = () => new StdioClientTransport({
    command: sekisho,
    args: ['--config', config, 'mcp', 'serve'],
    env: process.env,
});

// Operations of the documents that the service at URL was started with.
const offered = { figma__: 47, github__: 1223, stripe__: 417, twilio__: 197 };

for (const [name, transport] of [['http', http], ['stdio', stdio]]) {
    for (const options of [{}, { versionNegotiation: { mode: 'auto' } }]) {
        const client = new Client({ name: 'test', version: '1.0.0' }, options);
        await client.connect(transport());
        const tools = [];
        let cursor;
        do {
            const page = await client.listTools({ cursor });
            tools.push(...page.tools);
            cursor = page.nextCursor;
        } while (cursor);
        assert(tools.some((tool) => tool.name === 'calculator'));
        for (const [prefix, operations] of name === 'http' ? Object.entries(offered) : []) {
            assert.equal(tools.filter((tool) => tool.name.startsWith(prefix)).length, operations, prefix);
        }
        const called = await client.callTool({ name: 'calculator', arguments: { expression: '6*7' } });
        assert.equal(called.content[0].text, '42');
        const refused = await client.callTool({ name: 'calculator', arguments: {} });
        assert(refused.isError && refused.content[0].text.includes('expression'));

        const heard = [];
        const onprogress = ({ progress }) => heard.push(progress);
        await client.callTool({ name: 'fixture__test_tool_with_progress', arguments: {} }, { onprogress });
        assert.deepEqual(heard, [0, 50, 100], name);

        const giveUp = new AbortController();
        const slow = client.callTool(
            { name: 'fixture__test_slow', arguments: {} },
            { signal: giveUp.signal, onprogress: () => giveUp.abort('no longer wanted') },
        );
        await assert.rejects(slow);
        const again = await client.callTool({ name: 'calculator', arguments: { expression: '1+1' } });
        assert.equal(again.content[0].text, '2');
        await client.close();
        console.log(`${name}, ${JSON.stringify(options)}: ${tools.length} tools`);
    }
}
