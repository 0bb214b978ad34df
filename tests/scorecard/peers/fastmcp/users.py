# Users and scopes: https://gofastmcp.com/servers/authorization. A static verifier stands for a provider of tokens.
import json

from fastmcp.server import create_proxy
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier
from fastmcp.server.middleware import AuthMiddleware

verifier = StaticTokenVerifier(tokens={
    "key-of-alice-0123456789": {"client_id": "alice", "scopes": ["keeper"]},
    "key-of-bob-0123456789": {"client_id": "bob", "scopes": []},
})


def allowed(context):
    """The tool is for those with the scope."""
    return not context.component.name.endswith("recall") or "keeper" in context.token.scopes


proxy = create_proxy({"mcpServers": json.loads("""@mcpServers@""")}, name="scorecard", auth=verifier, middleware=[AuthMiddleware(auth=allowed)])

if __name__ == "__main__":
    proxy.run(transport="http", host="127.0.0.1", port=@port@, show_banner=False)
