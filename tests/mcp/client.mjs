// Lists and calls tools through the official TypeScript SDK: client.mjs URL
import assert from 'node:assert/strict';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

for (const options of [{}, { versionNegotiation: { mode: 'auto' } }]) {
    const client = new Client({ name: 'test', version: '1.0.0' }, options);
    await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2])));
    const tools = [];
    let cursor;
    do {
        const page = await client.listTools({ cursor });
        tools.push(...page.tools);
        cursor = page.nextCursor;
    } while (cursor);
    assert(tools.some((tool) => tool.name === 'calculator'));
    for (const [prefix, operations] of Object.entries({ figma__: 47, github__: 1223, stripe__: 417, twilio__: 197 })) {
        assert.equal(tools.filter((tool) => tool.name.startsWith(prefix)).length, operations, prefix);
    }
    const called = await client.callTool({ name: 'calculator', arguments: { expression: '6*7' } });
    assert.equal(called.content[0].text, '42');
    const refused = await client.callTool({ name: 'calculator', arguments: {} });
    assert(refused.isError && refused.content[0].text.includes('expression'));
    await client.close();
    console.log(`${JSON.stringify(options)}: ${tools.length} tools`);
}
