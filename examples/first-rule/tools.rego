# One rule for all tools: no argument names a file of credentials.
package tools

import rego.v1

deny contains "agents do not open files of credentials" if {
	walk(input.arguments, [_, text])
	is_string(text)
	regex.match(`(^|/)\.(env|ssh|aws|netrc)\b`, text)
}
