# shellcheck shell=bash
# Starts echo servers in Node and a gateway for them, the program $sekisho; sourced. All processes end with the script.
modules="$cache/bench-mcp"
node_packages "$modules" node@22 "@modelcontextprotocol/server@2.4.0" "@modelcontextprotocol/node@2.1.2"
cp benches/mcp/*.mjs "$modules/"
export PATH="$modules/node_modules/.bin:$PATH"

work="$(mktemp -d)"
started=()
stop() {
    for process in "${started[@]}"; do kill "$process" 2>/dev/null || true; done
    wait
    rm -rf "$work"
}
trap stop EXIT

# printed FILE PATTERN: the first match in a program's output.
printed() {
    for _ in $(seq 300); do
        grep -om1 "$2" "$1" 2>/dev/null && return 0
        sleep 0.1
    done
    say "it never printed $2:"; cat "$1" >&2
    return 1
}

# echo_server NAME [TOOLS]: starts one, its address in $url.
echo_server() {
    node "$modules/echo.mjs" "${2:-0}" >"$work/$1" 2>&1 &
    started+=($!)
    url="$(printed "$work/$1" 'http://127.0.0.1:[0-9]*/mcp')"
}

# gateway NAME TOOL: sekisho with the configuration $work/NAME.yaml once it lists the tool, its address in $url.
gateway() {
    SEKISHO_STATE_DIRECTORY="$work/state-$1" "$sekisho" --config "$work/$1.yaml" serve >"$work/$1.log" 2>&1 &
    pid=$!
    started+=("$pid")
    url="http://$(printed "$work/$1.log" '127\.0\.0\.1:[1-9][0-9]*')"
    for _ in $(seq 100); do
        curl -s "$url/tools/list" | grep -q "\"$2\"" && return 0
        sleep 0.1
    done
    say "the tools did not appear:"; cat "$work/$1.log" >&2
    return 1
}

# Limits are raised, but no check is removed.
common='server: {listen: "127.0.0.1:0"}
outbound: {mcp_allowed_domains: ["127.0.0.1"], allow_networks: ["127.0.0.1/32"]}
limits: {mcp_tool_rate_limit: 100000000}'

# one_server: starts an echo server, its address in $direct, and its gateway; $targets are the arguments of client.mjs.
one_server() {
    echo_server echo
    direct="$url"
    printf '%s\nmcp: {servers: {far: {url: "%s"}}}\n' "$common" "$direct" >"$work/one.yaml"
    gateway one far__echo
    targets=("rest=$url,far__echo" "mcp=$url/mcp,far__echo" "sessionless=$url/mcp,far__echo")
}
