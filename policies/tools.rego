# The default policies. Every reason that holds is told; a call without one goes through.
# Try a change with `sekisho explain TOOL JSON --as USER --role ROLE`, keep it with a case in cases/.
package tools

deny[msg] {
    input.tool == "file_write"
    not is_admin(input.user)
    msg := "file_writeには管理者ロールが必要です"
}

deny[msg] {
    input.metadata.dangerous
    not has_role(input.user, "operator")
    msg := sprintf("%s is dangerous: the caller needs the role operator", [input.tool])
}

deny[msg] {
    input.metadata.requires_auth
    input.user.anonymous
    msg := sprintf("%s needs a signed-in caller: send an API key or a token", [input.tool])
}
