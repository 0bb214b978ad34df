# Rules about where the values of a call come from, beside those of `policy.flow`: with `enforce` the gateway itself asks about a
# destination in question and refuses a secret that may not leave, and no rule permits that. These tighten it; each needs
# `policy.flow: observe` or `enforce`. Copy the ones that you want to the folder of `policy.directory`.
package tools

import rego.v1

# Nobody is asked about a payment to an account that a stranger may have named: it is refused.
deny contains "a payment goes only to an account that the user, a trusted tool or an earlier call has named" if {
    input.flow.sink == "pay"
    some question in input.flow.questions
    question.state in {"untrusted", "unknown"}
}

# A deletion of what exists needs no address of a stranger, only the idea.
require_approval contains "a deletion after text that strangers can write was read" if {
    input.flow.sink == "delete"
    input.flow.untrusted
}

# Nothing that is secret is published, under any name.
deny contains "a value of a secret result may not be published" if {
    input.flow.sink == "publish"
    some labels in input.argument_labels
    some origin in labels.origins
    count(object.get(origin, "secrecy", [])) > 0
}
