// The same MCP server as conformance_fixture.py, of the official TypeScript SDK: `conformance_fixture.mjs PORT`.
import { createHmac, randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { localhostHostValidation, localhostOriginValidation, NodeStreamableHTTPServerTransport, toNodeHandler, toWebRequest } from "@modelcontextprotocol/node";
import { createMcpHandler, isLegacyRequest, ProtocolError, Server } from "@modelcontextprotocol/server";

const fixture = JSON.parse(readFileSync(new URL("conformance_fixture.json", import.meta.url)));
const text = (value) => ({ type: "text", text: value });
const capabilities = {
  tools: {}, resources: { subscribe: true }, prompts: {}, completions: {}, logging: {},
};

const signed = (step) => `${step}:${createHmac("sha256", "for tests only").update(`${step}`).digest("hex")}`;
const kinds = { "elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots" };

const declared = (request) => request.envelope?.["io.modelcontextprotocol/clientCapabilities"] ?? {};

/** The questions of 2026-07-28, which a client answers in further requests; after the last round the answers. */
function rounds(name, request) {
  const given = request.inputResponses ?? {}, state = request.requestState?.(), steps = fixture.rounds[name];
  let step = state ? Number(state.split(":")[0]) : 0;
  if (state && state !== signed(step)) throw new ProtocolError(-32602, "the request state was changed");
  let asked = Object.fromEntries(Object.entries(steps[step]).filter(([, { method }]) => declared(request)[kinds[method]]));
  const keys = Object.keys(asked);
  if (keys.length > 0 && keys.every((key) => key in given)) {
    step += 1;
    if (step === steps.length) return { answers: text(JSON.stringify(given)) };
    asked = steps[step];
  }
  return { required: { resultType: "input_required", inputRequests: asked, requestState: signed(step) } };
}

/** `asks`: whether the revision lets it ask its client while a call runs. */
function server(asks) {
  const server = new Server({ name: "conformance", version: "1.0.0" }, { capabilities });
  server.setRequestHandler("tools/list", () => ({ tools: fixture.tools }));
  server.setRequestHandler("tools/call", async ({ params: { name, arguments: given = {}, _meta } }, context) => {
    let content = fixture.content[name];
    if (fixture.rounds[name] && !asks) {
      const { required, answers } = rounds(name, context.mcpReq);
      if (required) return required;
      content = [answers];
    }
    if (name === "test_missing_capability" && !declared(context.mcpReq).sampling) {
      throw new ProtocolError(-32021, "it needs a model", { requiredCapabilities: { sampling: {} } });
    }
    if (["test_tool_with_logging", "test_logging_tool"].includes(name)) {
      for (const data of ["Tool execution started", "Tool processing data", "Tool execution completed"]) {
        await context.mcpReq.log("info", data);
        await sleep(50);
      }
    } else if (name === "test_tool_with_progress") {
      for (const progress of [0, 50, 100]) {
        const params = { progressToken: _meta?.progressToken, progress, total: 100 };
        if (params.progressToken !== undefined) await context.mcpReq.notify({ method: "notifications/progress", params });
        await sleep(50);
      }
    } else if (name === "test_sampling" && asks) {
      const messages = [{ role: "user", content: text(given.prompt) }];
      const answer = await context.mcpReq.requestSampling({ messages, maxTokens: 100 });
      content = [text(`LLM response: ${answer.content.text}`)];
    } else if (fixture.questions[name] && asks) {
      const params = { message: given.message ?? "Please answer", requestedSchema: fixture.questions[name] };
      const answer = await context.mcpReq.elicitInput({ mode: "form", ...params });
      content = [text(`User response: action=${answer.action}, content=${JSON.stringify(answer.content)}`)];
    }
    if (!content) throw new ProtocolError(-32602, `there is no tool ${name}`);
    return { content, isError: name === "test_error_handling" };
  });
  server.setRequestHandler("resources/list", () => ({
    resources: Object.entries(fixture.resources).map(([uri, { mimeType }]) => ({ uri, name: uri, mimeType })),
  }));
  server.setRequestHandler("resources/templates/list", () => ({
    resourceTemplates: [{ uriTemplate: "test://template/{id}/data", name: "template", mimeType: "application/json" }],
  }));
  server.setRequestHandler("resources/read", ({ params: { uri } }) => {
    const id = /^test:\/\/template\/([^/]+)\/data$/.exec(uri)?.[1];
    const data = JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` });
    const found = id ? { mimeType: "application/json", text: data } : fixture.resources[uri];
    if (!found) throw new ProtocolError(asks ? -32002 : -32602, "Resource not found", { uri });
    return { contents: [{ uri, ...found }] };
  });
  server.setRequestHandler("prompts/list", () => ({ prompts: fixture.prompts }));
  server.setRequestHandler("prompts/get", ({ params: { name, arguments: given = {} } }, context) => {
    if (fixture.rounds[name] && !asks) {
      const { required, answers } = rounds(name, context.mcpReq);
      return required ?? { messages: [{ role: "user", content: answers }] };
    }
    let blocks = JSON.stringify(fixture.messages[name]);
    for (const [argument, value] of Object.entries(given)) blocks = blocks.replaceAll(`{${argument}}`, value);
    return { messages: JSON.parse(blocks).map((content) => ({ role: "user", content })) };
  });
  server.setRequestHandler("completion/complete", ({ params: { argument } }) => ({
    completion: { values: [`${argument.value}!`], total: 1, hasMore: false },
  }));
  if (asks) for (const method of ["resources/subscribe", "resources/unsubscribe"]) server.setRequestHandler(method, () => ({}));
  return server;
}

const sessions = new Map();
const newer = toNodeHandler(createMcpHandler(() => server(false), { legacy: "reject" }));
const guards = [localhostHostValidation(), localhostOriginValidation()];
const port = Number(process.argv[2]);
createServer(async (request, response) => {
  if (!guards.every((guard) => guard(request, response))) return;
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = Buffer.concat(chunks).toString();
  let parsed;
  try { parsed = JSON.parse(body); } catch { /* The SDK answers. */ }
  const isOlder = await isLegacyRequest(await toWebRequest(request, parsed));
  if (!isOlder) return newer(request, response, parsed);
  const id = request.headers["mcp-session-id"];
  let transport = sessions.get(id);
  if (!transport && id) return response.writeHead(404).end();
  if (!transport) {
    const onsessioninitialized = (id) => void sessions.set(id, transport);
    transport = new NodeStreamableHTTPServerTransport({ sessionIdGenerator: randomUUID, onsessioninitialized });
    await server(true).connect(transport);
  }
  await transport.handleRequest(request, response, parsed);
}).listen(port, "127.0.0.1", () => console.log(`listening on http://127.0.0.1:${port}/mcp`));
