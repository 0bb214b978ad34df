// The MCP server that calls are measured against: one tool that returns its argument, and the SDK's sessions.
// echo.mjs [TOOLS]: the number of further tools in its list. Prints its address.
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { NodeStreamableHTTPServerTransport } from '@modelcontextprotocol/node';
import { Server } from '@modelcontextprotocol/server';

const text = { type: 'string', description: 'What is said again.' };
const tool = (name) => ({
    name,
    description: 'Says what it was told.',
    inputSchema: { type: 'object', properties: { text }, required: ['text'] },
});
const more = Number(process.argv[2] ?? 0);
const tools = [tool('echo'), ...Array.from({ length: more }, (_, number) => tool(`echo_${number}`))];

function server() {
    const server = new Server({ name: 'echo', version: '1.0.0' }, { capabilities: { tools: {} } });
    server.setRequestHandler('tools/list', () => ({ tools }));
    server.setRequestHandler('tools/call', ({ params }) => ({
        content: [{ type: 'text', text: params.arguments.text }],
    }));
    return server;
}

const sessions = new Map();
const listener = createServer(async (request, response) => {
    let transport = sessions.get(request.headers['mcp-session-id']);
    if (!transport) {
        transport = new NodeStreamableHTTPServerTransport({
            sessionIdGenerator: randomUUID,
            enableJsonResponse: true,
            onsessioninitialized: (id) => sessions.set(id, transport),
        });
        await server().connect(transport);
    }
    await transport.handleRequest(request, response);
});
listener.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${listener.address().port}/mcp`));
