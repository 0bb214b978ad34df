// Compiles the specifications of @typespec/http-specs to OpenAPI 3.1, and writes the requests of their scenarios.
// typespec.mjs MODULES OUT PORT: the folder of the packages, the folder for `FOLDER/…/openapi*.json` and `scenarios.json`, and the port of the mock server.
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { pathToFileURL } from "node:url";

const [modules, out, port] = process.argv.slice(2);
const specs = join(modules, "node_modules/@typespec/http-specs");
const config = { baseUrl: `http://localhost:${port}` };
const { expandDyns } = await import(pathToFileURL(join(modules, "node_modules/@typespec/spec-api/dist/index.js")));

const settings = join(out, "tspconfig.yaml");
writeFileSync(settings, `emit: ["@typespec/openapi3"]
options: {"@typespec/openapi3": {openapi-versions: ["3.1.0"], file-type: json}}
`);
const scenarios = [];
for (const file of readdirSync(join(specs, "specs"), { recursive: true }).filter((file) => file.endsWith("main.tsp")).sort()) {
    const folder = dirname(file);
    if (!existsSync(join(out, folder, "@typespec"))) {
        const compiler = join(modules, "node_modules/@typespec/compiler/cmd/tsp.js");
        const options = ["compile", join(specs, "specs", file), "--config", settings, "--output-dir", join(out, folder)];
        const { status, stdout } = spawnSync(process.execPath, [compiler, ...options], { encoding: "utf8" });
        if (status !== 0) console.error(`${folder} is not compiled: ${stdout}`);
    }
    const { Scenarios } = await import(pathToFileURL(join(specs, "dist/specs", folder, "mockapi.js")));
    for (const [name, scenario] of Object.entries(Scenarios)) {
        const code = scenario.passCondition === "status-code" ? scenario.code : undefined;
        scenarios.push({ folder, name, code, asks: scenario.apis.map(request) });
    }
}
writeFileSync(join(out, "scenarios.json"), JSON.stringify(scenarios));

function request({ uri, method, request: { query, headers, body, pathParams, files } = {}, response }) {
    const plain = (value) => (value === undefined ? undefined : expandDyns(value, config));
    return { uri, method, path: plain(pathParams), query: plain(query), headers: plain(headers), body: bodyOf(body, files), status: response.status };
}

function bodyOf(body, files) {
    if (body?.kind === "multipart" || files) {
        const parts = (body?.files ?? files ?? []).map(({ fieldname, originalname, buffer, mimetype }) => ({
            name: fieldname, filename: originalname, content_type: mimetype, content_base64: buffer.toString("base64"),
        }));
        return { contentType: "multipart/form-data", fields: body?.parts ?? body?.rawContent, files: parts };
    }
    if (!body) return undefined;
    const { contentType, rawContent: raw } = body;
    const bytes = typeof raw === "string" || Buffer.isBuffer(raw) || raw === undefined ? raw : raw.serialize(config);
    return { contentType, base64: Buffer.from(bytes ?? "").toString("base64") };
}
