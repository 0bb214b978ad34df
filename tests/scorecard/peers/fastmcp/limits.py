# A limit for each user: https://gofastmcp.com/servers/middleware, Rate Limiting.
import json

from fastmcp.server import create_proxy
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier
from fastmcp.server.dependencies import get_access_token
from fastmcp.server.middleware.rate_limiting import SlidingWindowRateLimitingMiddleware

verifier = StaticTokenVerifier(tokens={
    "key-of-alice-0123456789": {"client_id": "alice", "scopes": ["keeper"]},
    "key-of-bob-0123456789": {"client_id": "bob", "scopes": []},
})


class CallsOnly(SlidingWindowRateLimitingMiddleware):
    """The limit is for calls of tools."""

    async def on_request(self, context, call_next):
        if context.method != "tools/call":
            return await call_next(context)
        return await super().on_request(context, call_next)


limiter = CallsOnly(max_requests=5, window_minutes=1, get_client_id=lambda context: get_access_token().client_id)
proxy = create_proxy({"mcpServers": json.loads("""@mcpServers@""")}, name="scorecard", auth=verifier, middleware=[limiter])

if __name__ == "__main__":
    proxy.run(transport="http", host="127.0.0.1", port=@port@, show_banner=False)
