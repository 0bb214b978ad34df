"""What is wrong with values."""

import json


class ValidationError(ValueError):
    """The faults of one value: where, what, and which value."""

    def __init__(self, title, faults):
        super().__init__(title)
        self.title = title
        self._faults = faults

    def errors(self, **_options):
        return [
            {"type": fault.kind, "loc": _location(fault.path), "msg": fault.message, "input": fault.value} for fault in self._faults
        ]

    def error_count(self):
        return len(self._faults)

    def json(self, **_options):
        return json.dumps(self.errors(), default=repr)

    def __str__(self):
        plural = "" if len(self._faults) == 1 else "s"
        lines = [f"{len(self._faults)} validation error{plural} for {self.title}"]
        for fault in self._faults:
            shown = repr(fault.value)[:50]
            place = ".".join(map(str, _location(fault.path)))
            kind = f"[type={fault.kind}, input_value={shown}, input_type={type(fault.value).__name__}]"
            lines += [place] * bool(place) + [f"  {fault.message} {kind}"]
        return "\n".join(lines)


def _location(path):
    return tuple(int(part) if part.isdigit() else part for part in path.split("/")[1:])
