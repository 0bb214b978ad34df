"""Values of effects that a program proposes: they are known once the effects are made, after the program has ended.

Such a value is a text with a token, which the host replaces in the arguments of further effects. A part of it is one, too. A program
cannot decide by it: what needs the value raises `TypeError`.
"""

# Also in `tokens.rs`.
MEMBER, BEGIN = "$effect", "{{effect:"


def given(value):
    """The value of a call, as the program gets it."""
    token = value.get(MEMBER) if isinstance(value, dict) and len(value) == 1 else None
    return EffectValue(token) if isinstance(token, str) and token.startswith(BEGIN) else value


def _unknown(self, *_):
    raise TypeError(
        "this value is known once the effect is made, after the program has ended: pass it, or a part of it, to a tool or put it into a "
        "text; a program that decides by it cannot propose its effects"
    )


class EffectValue(str):
    """A value that is not known yet."""

    def __getitem__(self, key):
        if isinstance(key, bool) or not isinstance(key, (str, int)) or isinstance(key, EffectValue):
            _unknown(self)
        part = str(key).replace("~", "~0").replace("/", "~1")
        if "}" in part or isinstance(key, int) and key < 0:
            raise KeyError(f"a part of a value that is not known yet has no name like {key!r}")
        text = str.__str__(self)
        return EffectValue(f"{text[:-2]}/{part}}}}}")

    def get(self, key, default=None):
        return self[key]

    def __hash__(self):
        _unknown(self)

    __bool__ = __contains__ = __eq__ = __ge__ = __gt__ = __iter__ = __le__ = __len__ = __lt__ = __ne__ = _unknown
    __float__ = __int__ = __index__ = __mod__ = __mul__ = __rmul__ = _unknown


# The methods of texts would change the token.
for _name in dir(str):
    if not _name.startswith("_"):
        setattr(EffectValue, _name, _unknown)
