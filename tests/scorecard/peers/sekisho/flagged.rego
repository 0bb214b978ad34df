package tools

import rego.v1

deny contains "its texts are flagged" if count(input.metadata.flags) > 0
