# Rules add to the checks of `roles`, `requires_auth` and `dangerous`; they never loosen them. Every reason of `deny` is
# given to the caller. `has_role` and `is_admin` come with the gateway.
package tools

import rego.v1

# Agents read the web for researchers only, and never an address that is not encrypted.
deny contains "web_fetch is for researchers" if {
	input.tool == "web_fetch"
	not has_role(input.user, "researcher")
}

deny contains "web_fetch reads https addresses only" if {
	input.tool == "web_fetch"
	not startswith(input.arguments.url, "https://")
}

# Files are written below drafts/, except by administrators.
deny contains "files are written below drafts/" if {
	input.tool == "file_write"
	not is_admin(input.user)
	not startswith(input.arguments.path, "drafts/")
}

# A session that has cost a dollar is over, whatever its next tool costs.
deny contains "this session has used up one dollar" if input.session.cost_usd >= 1

# Sandboxed code comes from signed-in callers.
deny contains "sign in to run code" if {
	input.metadata.sandboxed
	input.user.anonymous
}

# Of the MCP server "docs", the payroll is for accountants. `target` is null for tools, so the kind comes first.
deny contains "payroll is for accountants" if {
	input.kind == "resource"
	startswith(input.target, "docs+file:///payroll/")
	not has_role(input.user, "accountant")
}

# Tools labelled "money" do not run inside agents.
deny contains "a person must make this call" if {
	"money" in input.metadata.labels
	input.call.via == "agent"
}
