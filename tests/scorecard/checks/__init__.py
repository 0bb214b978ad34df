"""The checks by name. A check gets the run of a case (run.py) and raises `Failed` with what it observed; without that the case has passed.
A check of the group `cost` gives its values."""
from client import Failed


def expect(holds, observed):
    if not holds:
        raise Failed(observed)


def same(what, expected, observed):
    expect(observed == expected, f"{what}: expected {str(expected)[:300]}, observed {str(observed)[:300]}")


def all_checks():
    from checks import control, cost, faults, fidelity, injection, operations, sharing, tolerance
    modules = (fidelity, tolerance, faults, sharing, control, injection, operations, cost)
    return {name: value for module in modules for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__}
