package tools

deny[msg] {
    input.tool == "plain__echo"
    input.arguments.value == "forbidden"
    msg := "this value is forbidden"
}
