"""Calls a tool with the client that openapi-python-client generates from /openapi.json.

    openapi-python-client generate --url "$SEKISHO_URL/openapi.json" --meta none --output-path sekisho_client
    python3 call_tool.py calculator '{"expression": "6*7"}'
"""

import json
import os
import sys

from sekisho_client import AuthenticatedClient
from sekisho_client.api.tools import execute_tool
from sekisho_client.models import ExecuteRequest

# A gateway on loopback without `auth` needs no key, and accepts any.
client = AuthenticatedClient(
    base_url=os.environ.get("SEKISHO_URL", "http://127.0.0.1:8080"), token=os.environ.get("SEKISHO_API_KEY", "none")
)
tool, arguments = sys.argv[1], json.loads(sys.argv[2])
reply = execute_tool.sync(tool, client=client, body=ExecuteRequest.from_dict({"arguments": arguments}))
if not reply.success:
    sys.exit(f"{reply.error_info.code}: {reply.error}")
print(reply.text)
