// The OpenAI package for JavaScript streams a conversation that uses tools. BASE_URL names the gateway's /v1.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.env.CLIENTS}/`);
const { default: OpenAI } = await import(pathToFileURL(require.resolve("openai")).href);
const client = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: "none", maxRetries: 0, timeout: 20_000 });

const messages = [{ role: "user", content: "Is 21.5 °C warm?" }];
let text = "", finish, usage;
const asked = { model: "weather", messages, stream: true, stream_options: { include_usage: true } };
for await (const chunk of await client.chat.completions.create(asked)) {
  usage = chunk.usage ?? usage;
  text += chunk.choices[0]?.delta?.content ?? "";
  finish = chunk.choices[0]?.finish_reason ?? finish;
}
assert.ok(text.endsWith("70.7 °F."), text);
assert.equal(finish, "stop");
assert.equal(usage.total_tokens, 332);

// The package's own helper joins the chunks, and runs the client's tool.
const click = { name: "click", parse: JSON.parse, parameters: { type: "object", properties: {} }, function: () => "clicked" };
const tools = [{ type: "function", function: click }];
const runner = client.chat.completions.runTools({ model: "clicker", messages, tools, stream: true });
assert.equal(await runner.finalContent(), "Clicked.");

// The Responses API, whose function is called, answered, and the response goes on by its id.
const called = { type: "function", name: "click", strict: false, parameters: { type: "object", properties: {} } };
const streaming = client.responses.stream({ model: "clicker", input: "Click it.", tools: [called] });
const kinds = [];
for await (const event of streaming) kinds.push(event.type);
const asks = await streaming.finalResponse();
assert.deepEqual([kinds[0], kinds.at(-1)], ["response.created", "response.completed"]);
assert.equal(asks.output[0].name, "click");
const output = [{ type: "function_call_output", call_id: asks.output[0].call_id, output: "clicked" }];
const done = await client.responses.create({ model: "clicker", input: output, previous_response_id: asks.id });
assert.equal(done.output_text, "Clicked.");
