// The AI SDK with its default for OpenAI, the Responses API, which sends items by reference. BASE_URL names the gateway's /v1.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.env.CLIENTS}/`);
const load = async (name) => import(pathToFileURL(require.resolve(name)).href);
const [{ createOpenAI }, { generateText, stepCountIs, streamText, tool }, { z }] = [
  await load("@ai-sdk/openai"),
  await load("ai"),
  await load("zod"),
];
const openai = createOpenAI({ baseURL: process.env.BASE_URL, apiKey: "none" });
const click = tool({ description: "Clicks.", inputSchema: z.object({}), execute: async () => "clicked" });

for (const model of [(name) => openai(name), (name) => openai.chat(name)]) {
  const { text } = await generateText({ model: model("weather"), prompt: "Is 21.5 °C warm?", maxRetries: 0 });
  assert.ok(text.endsWith("70.7 °F."), text);
  const asked = { model: model("clicker"), prompt: "Click it.", tools: { click }, stopWhen: stepCountIs(3), maxRetries: 0 };
  const clicked = await generateText(asked);
  assert.equal(clicked.text, "Clicked.");
  const streamed = streamText(asked);
  assert.equal(await streamed.text, "Clicked.");
  assert.equal(await streamed.finishReason, "stop");
}
