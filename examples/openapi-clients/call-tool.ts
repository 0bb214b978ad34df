// Calls a tool with the types that openapi-typescript generates from /openapi.json.
//
//     npm install openapi-fetch openapi-typescript typescript @types/node
//     npx openapi-typescript "$SEKISHO_URL/openapi.json" -o sekisho.d.ts
//     npx tsc --strict --target es2022 --module nodenext call-tool.ts
//     node call-tool.js calculator '{"expression": "6*7"}'

import createClient from "openapi-fetch";
import type { paths } from "./sekisho.js";

// A gateway on loopback without `auth` needs no key.
const key = process.env.SEKISHO_API_KEY;
const client = createClient<paths>({
  baseUrl: process.env.SEKISHO_URL ?? "http://127.0.0.1:8080",
  headers: key ? { Authorization: `Bearer ${key}` } : {},
});
const [name, text] = process.argv.slice(2);
const { data, error } = await client.POST("/tools/{name}/execute", {
  params: { path: { name } },
  body: { arguments: JSON.parse(text) },
});
const reply = data ?? error;
if (!reply.success) {
  console.error(`${reply.error_info?.code}: ${reply.error}`);
  process.exit(1);
}
console.log(reply.text);
