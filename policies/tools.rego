# The default policies: none beyond what the gateway checks itself before any policy. A tool's `roles` hide it from
# others, `requires_auth` refuses callers without credentials, `dangerous` asks for one of `policy.dangerous_roles`.
# Rules come on top: every reason in `deny` is given to the caller, and a call without one goes through.
# Try a change with `sekisho explain TOOL JSON --as USER --role ROLE`, keep it with a case in cases/.
#
# deny[msg] {
#     input.tool == "web_fetch"
#     not has_role(input.user, "researcher")
#     msg := "web_fetch is for researchers"
# }
package tools

deny[msg] {
    false
    msg := "never"
}
