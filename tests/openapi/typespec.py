"""The scenarios of TypeSpec (@typespec/http-specs) as calls of tools. Their mock server judges each request.

typespec.py SEKISHO MODULES FEWEST: the program, the folder of the packages, and how many scenarios have to pass.
"""
import base64, json, os, pathlib, re, socket, subprocess, sys, tempfile, time, urllib.parse, urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "mcp"))
from gateway import Gateway  # noqa: E402

METHODS = ["get", "put", "post", "delete", "options", "head", "patch", "trace"]
# The credentials that the mock server takes.
OAUTH = {"token": "https://security.microsoft.com/.default", "api_key": "valid-key"}
CREDENTIALS = {"authentication/http/custom": {"token": "valid-key"}}


class Document:
    """One OpenAPI document: its operations, each with the tool's name."""

    def __init__(self, folder, file, number):
        self.folder, self.file, self.collection = folder, file, f"d{number}"
        self.content = json.loads(file.read_text())
        server = (self.content.get("servers") or [{"url": ""}])[0]
        url = server["url"]
        version = file.name.removeprefix("openapi.").removesuffix("json").rstrip(".")
        for name, variable in server.get("variables", {}).items():
            allowed = variable.get("enum", [])
            chosen = version if version in allowed else next(iter(allowed), "")
            url = url.replace("{" + name + "}", variable.get("default") or chosen)
        self.base = urllib.parse.urlsplit(url).path.rstrip("/")
        self.operations = []
        for path, item in self.content["paths"].items():
            for method in METHODS:
                if method in item:
                    parameters = [self.target(one) for one in item.get("parameters", []) + item[method].get("parameters", [])]
                    self.operations.append((method, path, item[method], parameters))

    def target(self, value):
        while isinstance(value, dict) and "$ref" in value:
            found = self.content
            for step in value["$ref"].removeprefix("#/").split("/"):
                found = found[step.replace("~1", "/").replace("~0", "~")]
            value = found
        return value

    def settings(self, server):
        renames = {f"{method.upper()} {path}": f"o{at}" for at, (method, path, _, _) in enumerate(self.operations)}
        ids = {operation["operationId"]: f"o{at}" for at, (_, _, operation, _) in enumerate(self.operations) if "operationId" in operation}
        auth = CREDENTIALS.get(self.folder, OAUTH) if self.folder.startswith("authentication") else {}
        return {"spec_file": str(self.file), "base_url": server + self.base, "renames": {**renames, **ids}, "auth_config": auth,
                "dangerous": {"methods": []}, "rate_limit": 1_000_000, "base_cost_per_use": 0}

    def operation(self, method, path):
        """The position of the operation, and the texts of its path's parameters."""
        found = []
        for at, (own, template, _, _) in enumerate(self.operations):
            names = re.findall(r"\{(.*?)\}", template)
            pattern = re.sub(r"\\\{.*?\\\}", "(.*)", re.escape(self.base + template))
            if own == method and (match := re.fullmatch(pattern, path)):
                found.append((len(names), at, dict(zip(names, match.groups()))))
        return min(found, key=lambda one: one[:2])[1:] if found else None

    def kind(self, schema):
        schema = self.target(schema)
        for keyword in ["anyOf", "oneOf", "allOf"]:
            for part in schema.get(keyword, []):
                if kind := self.kind(part):
                    return kind
        kinds = schema.get("type", "")
        return next((kind for kind in kinds if kind != "null"), "") if isinstance(kinds, list) else kinds

    def typed(self, schema, wire):
        """The value of a text, or of a list of texts."""
        schema, kind = self.target(schema), self.kind(schema)
        if kind == "array":
            wire = wire if isinstance(wire, list) else [wire]
            return [self.typed(schema.get("items", {}), item) for item in wire]
        if kind == "object" and isinstance(wire, dict):
            properties = schema.get("properties", {})
            others = schema.get("additionalProperties")
            others = others if isinstance(others, dict) else {}
            return {name: self.typed(properties.get(name, others), value) for name, value in wire.items()}
        if not isinstance(wire, str):
            return wire
        if kind in ("integer", "number"):
            number = float(wire)
            return int(number) if number.is_integer() else number
        return wire == "true" if kind == "boolean" else wire


def split(text, kind, name, style, explode):
    """A text of a parameter, by its style, as texts."""
    prefix = {"label": ".", "matrix": ";"}.get(style, "")
    text = text.removeprefix(prefix)
    if style == "matrix" and not (explode and kind == "object"):
        text = text.replace(f"{name}=", "")
    separator = {"spaceDelimited": " ", "pipeDelimited": "|"}.get(style, prefix if explode and prefix else ",")
    if kind == "array":
        return [urllib.parse.unquote(part) for part in text.split(separator)]
    if kind == "object":
        parts = [urllib.parse.unquote(part) for part in text.split(separator)]
        return dict(part.split("=", 1) for part in parts) if explode else dict(zip(parts[::2], parts[1::2]))
    return urllib.parse.unquote(text)


def arguments(document, at, in_path, ask, query, properties):
    _, _, operation, parameters = document.operations[at]
    headers = {name.lower(): value for name, value in (ask.get("headers") or {}).items()}
    given = {}
    for parameter in parameters:
        name, place, schema = parameter["name"], parameter["in"], parameter.get("schema", {})
        style = parameter.get("style", "form" if place in ("query", "cookie") else "simple")
        explode = parameter.get("explode", style == "form")
        kind = document.kind(schema)
        wire = {"path": in_path, "query": query, "header": headers}.get(place, {}).get(name.lower() if place == "header" else name)
        if place == "query" and kind == "object" and explode and wire is None:
            wire = {key: value for key, value in query.items() if key not in {one["name"] for one in parameters}} or None
        if wire is None:
            continue
        if isinstance(wire, str) and (kind in ("array", "object") or place == "path"):
            wire = split(wire, kind, name, style, explode)
        key = next((key for key in (f"{place}_{name}", name) if key in properties), name)
        given[key] = document.typed(schema, text_of(wire))
    if ask.get("body"):
        given.update(body(document, operation, ask["body"], properties, {one["name"] for one in parameters}))
    elif document.target(operation.get("requestBody", {})).get("required") and "body" in properties:
        # All its members are read-only.
        given["body"] = {}
    return given


def text_of(wire):
    """A number as the text that is sent of it."""
    return str(wire) if isinstance(wire, (int, float)) and not isinstance(wire, bool) else wire


def body(document, operation, sent, properties, taken):
    content = document.target(operation.get("requestBody", {})).get("content", {})
    declared = content.get(sent["contentType"]) or next(iter(content.values()), {})
    schema = document.target(declared.get("schema", {}))
    value = read(document, schema, sent, properties)
    members = schema.get("properties", {})
    is_whole = "body" in properties and "body" not in members and "body" not in taken
    if is_whole or not isinstance(value, dict):
        given = {"body": value}
    else:
        given = {f"body_{name}" if f"body_{name}" in properties else name: member for name, member in value.items()}
    if "content_type" in properties and "content_type" not in members:
        given["content_type"] = sent["contentType"]
    return given


def read(document, schema, sent, properties):
    """The value of a body."""
    if "files" in sent:
        members = schema.get("properties", {})
        value = {name: document.typed(members.get(name, {}), text_of(part)) for name, part in (sent.get("fields") or {}).items()}
        for file in sent["files"]:
            name = file.pop("name")
            if document.kind(members.get(name, {})) == "array":
                value.setdefault(name, []).append(file)
            else:
                value[name] = file
        return value
    raw = base64.b64decode(sent["base64"])
    if re.search(r"[/+]json$", sent["contentType"]):
        return json.loads(raw)
    if sent["contentType"] == "application/x-www-form-urlencoded":
        return document.typed(schema, dict(urllib.parse.parse_qsl(raw.decode())))
    if "content_base64" in properties.get("body", {}).get("properties", {}):
        return {"content_base64": sent["base64"], "content_type": sent["contentType"]}
    # Bytes where the tool takes a text: the mock server refuses what arrives.
    return document.typed(schema, raw.decode(errors="replace"))


def place_of(ask):
    """Path and query of a request."""
    uri = ask["uri"].replace("\\:", ":")
    for name, value in (ask.get("path") or {}).items():
        uri = uri.replace(f":{name}", urllib.parse.quote(str(value), safe=""))
    path, _, written = uri.partition("?")
    query = {}
    for name, value in urllib.parse.parse_qsl(written, keep_blank_values=True):
        query[name] = [*([query[name]] if isinstance(query[name], str) else query[name]), value] if name in query else value
    return path, {**query, **(ask.get("query") or {})}


def ask_all(gateway, documents, schemas, scenario):
    """Makes the requests of a scenario; the reason where one cannot be made, and the errors of the tools."""
    errors = []
    if scenario["name"].endswith("_invalid"):
        return "it is about other credentials", errors
    for ask in scenario["asks"]:
        path, query = place_of(ask)
        found = [(document, *operation) for document in documents if document.folder == scenario["folder"]
                 if (operation := document.operation(ask["method"], path))]
        if not found:
            return f"no operation for {ask['method']} {path}", errors
        document, at, in_path = found[-1]
        tool = f"{document.collection}__o{at}"
        if tool not in schemas:
            return f"{tool} is not offered", errors
        given = arguments(document, at, in_path, ask, query, schemas[tool].get("properties", {}))
        reply = gateway.call(tool, given)
        if not reply["success"]:
            errors.append(f"{tool} {json.dumps(given)[:300]}: {reply['error'][:300]}")
    return None, errors


def until_it_answers(url, server, log):
    for _ in range(600):
        try:
            return json.load(urllib.request.urlopen(url))
        except OSError:
            if server.poll() is not None:
                break
            time.sleep(0.1)
    raise AssertionError(f"{url} does not answer\n{log.read_text()[-4000:]}")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment_with_a_commit(folder):
    """The mock server asks git for a commit of its specifications, which are in no repository."""
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", "-C", folder]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "no change"], check=True)
    return {**os.environ, "GIT_DIR": str(folder / ".git")}


def are_all_read(gateway):
    """Those that take long are offered later. Scenarios of one that cannot be read are not asked."""
    degraded = gateway.ready()
    return not any(name.startswith("openapi:") and "being loaded" in reason for name, reason in degraded.items())


def main(sekisho, modules, fewest):
    modules, port = pathlib.Path(modules), free_port()
    out, node = modules / "documents", modules / "node_modules/.bin/node"
    out.mkdir(exist_ok=True)
    subprocess.run([node, pathlib.Path(__file__).with_suffix(".mjs"), modules, out, str(port)], check=True)
    files = [file for file in sorted(out.rglob("openapi*.json"))]
    documents = [Document(str(file.relative_to(out)).split("/@typespec")[0], file, at) for at, file in enumerate(files)]
    scenarios = json.loads((out / "scenarios.json").read_text())
    mock = [node, modules / "node_modules/@typespec/spector/cmd/cli.mjs", "serve", modules / "node_modules/@typespec/http-specs/specs",
            "--port", str(port), "--coverageFile", out / "coverage.json"]
    coverage, log = f"http://127.0.0.1:{port}/.coverage", out / "mock.log"
    with tempfile.TemporaryDirectory() as folder, log.open("w") as written:
        folder = pathlib.Path(folder)
        server = subprocess.Popen(mock, env=environment_with_a_commit(folder), stdout=written, stderr=written)
        try:
            until_it_answers(coverage, server, log)
            collections = {one.collection: one.settings(f"http://127.0.0.1:{port}") for one in documents}
            gateway = Gateway(sekisho, folder, {}, yaml=f"openapi: {{collections: {json.dumps(collections)}}}")
            gateway.until(lambda: are_all_read(gateway), 180, "every document is read")
            schemas = {tool["name"]: tool["parameters"] for tool in gateway.json("GET", "/tools/schemas")}
            asked = {one["name"]: ask_all(gateway, documents, schemas, one) for one in scenarios}
            gateway.stop()
            results = {name: result for report in until_it_answers(coverage, server, log) for name, result in report["results"].items()}
        finally:
            server.terminate()
            server.wait(20)
    could = [name for name, (reason, _) in asked.items() if reason is None]
    failed = [name for name in could if results.get(name) != "pass"]
    for name, (reason, _) in asked.items():
        if reason:
            print(f"not asked: {name}: {reason}")
    for name in failed:
        print(f"failed: {name} ({results.get(name)}): {'; '.join(asked[name][1]) or 'every call succeeded'}")
    print(f"{len(could) - len(failed)} of {len(could)} scenarios passed, of {len(scenarios)}")
    sys.exit(len(could) - len(failed) < int(fewest))


if __name__ == "__main__":
    main(*sys.argv[1:])
