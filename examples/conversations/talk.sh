#!/bin/sh
# Creates a conversation at a running gateway, says something to it, and shows its events, its messages and its usage.
# Needs curl. The address is the first argument.
set -eu
gateway=${1:-http://localhost:8080}

post() {
    curl -sS --fail-with-body -H 'content-type: application/json' -d "$2" "$gateway$1"
}

id=$(post /api/conversations '{"labels": {"topic": "weather"}}' | sed 's/.*"id":"\([^"]*\)".*/\1/')
echo "conversation $id"

curl -sS -N --fail-with-body -H 'content-type: application/json' -H 'accept: text/event-stream' \
    -d '{"user_input": "Is 21.5 °C warm?"}' "$gateway/api/conversations/$id/execute"

curl -sS "$gateway/api/conversations/$id/messages"
echo
curl -sS "$gateway/api/logs/usage?conversation_id=$id&format=csv"
