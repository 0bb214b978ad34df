"""What programs of notebooks ask of IPython: there is none here, and its output is printed."""

from . import display as display

# Libraries compare it.
version_info = (9, 0, 0)


def get_ipython():
    return None
