"""Names of fields in JSON, of their names in Python."""

from _sekisho_module_fields import to_camel, to_pascal, to_snake

__all__ = ["to_camel", "to_pascal", "to_snake"]
