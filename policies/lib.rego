# What every rule of this package may call without importing anything.
package tools

import rego.v1

has_role(user, role) if role in user.roles

is_admin(user) if has_role(user, "admin")
