# FastMCP's proxy as https://gofastmcp.com/servers/proxy recommends it: create_proxy, one MCPConfig, HTTP.
import json

from fastmcp.server import create_proxy

proxy = create_proxy({"mcpServers": json.loads("""@mcpServers@""")}, name="scorecard")

if __name__ == "__main__":
    proxy.run(transport="http", host="127.0.0.1", port=@port@, show_banner=False)
