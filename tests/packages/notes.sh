#!/bin/sh
# An MCP server with two tools, one of which says that it destroys something. It needs only a shell and sed, so that it runs where
# a package was just installed.
while IFS= read -r line; do
    id="$(printf '%s\n' "$line" | sed -n 's/.*"id":\("[^"]*"\|[0-9]*\).*/\1/p')"
    [ -n "$id" ] || continue
    case "$line" in
        *'"method":"initialize"'*)
            answer='"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"notes","version":"1"}}'
            ;;
        *'"method":"tools/list"'*)
            answer='"result":{"tools":[{"name":"read","description":"Reads the note.","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},{"name":"delete","description":"Deletes the note.","inputSchema":{"type":"object"},"annotations":{"destructiveHint":true}}]}'
            ;;
        *'"method":"tools/call"'*) answer='"result":{"content":[{"type":"text","text":"buy milk"}]}' ;;
        *) answer='"error":{"code":-32601,"message":"no such method"}' ;;
    esac
    printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$answer"
done
