"""What a docstring says: the description, and of each parameter and of the result. Google's, NumPy's and reST's forms."""

import inspect
import re

PARAMETERS = ("args", "arguments", "parameters", "params", "keyword args", "keyword arguments", "other parameters")
RESULTS = ("returns", "return")
# What is of no use to whoever calls a tool.
OMITTED = ("raises", "yields", "warns")

# `name: text`, `name (type): text`, and of NumPy `name : type` or `name, other : type`.
GOOGLE_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\(.*?\)\s*)?:\s*(.*)")
NUMPY_ENTRY = re.compile(r"\*{0,2}(\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
# Of `type: text` below `Returns:`, without what is in brackets. A text may have many `|`: a table.
RESULT_TYPE = re.compile(r"[\w.]+(?:\s*\|\s*[\w.]+)*")
REST_FIELD = re.compile(r":(\w+)\b([^:]*):\s*(.*)")
REST_PARAMETERS = ("param", "parameter", "arg", "argument", "key", "keyword")


class Docstring:
    def __init__(self, text):
        self.parameters = {}
        self.result = ""
        kept = []
        lines = inspect.cleandoc(text or "").split("\n")
        at = 0
        while at < len(lines):
            at = self._section(lines, at) or self._field(lines, at) or _keep(kept, lines, at)
        self.description = re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()

    def _section(self, lines, at):
        """The line after a section that begins here, or None."""
        line = lines[at]
        title = line.strip().removesuffix(":").lower()
        if title not in (*PARAMETERS, *RESULTS, *OMITTED) or line[:1].isspace():
            return None
        is_numpy = at + 1 < len(lines) and re.fullmatch(r"\s*-{3,}\s*", lines[at + 1])
        if not is_numpy and not line.rstrip().endswith(":"):
            return None
        begin = at + 2 if is_numpy else at + 1
        end = _end_of_numpy(lines, begin) if is_numpy else _end_of_block(lines, begin, 0)
        block = lines[begin:end]
        if title in PARAMETERS:
            self._parameters(block, bool(is_numpy))
        elif title in RESULTS:
            self._result(block, bool(is_numpy))
        return end

    def _parameters(self, block, is_numpy):
        depth = min((_indent(line) for line in block if line.strip()), default=0)
        names, texts = [], []
        for line in [*block, None]:
            if line is not None and (not line.strip() or _indent(line) > depth):
                texts.append(line.strip())
                continue
            for name in names:
                self.parameters.setdefault(name, _joined(texts))
            names, texts = [], []
            entry = line is not None and (NUMPY_ENTRY if is_numpy else GOOGLE_ENTRY).match(line.strip())
            if entry and is_numpy:
                names = [name.strip(" *") for name in entry[1].split(",")]
            elif entry:
                names, texts = [entry[1]], [entry[2]]

    def _result(self, block, is_numpy):
        depth = min((_indent(line) for line in block if line.strip()), default=0)
        if is_numpy:
            # Its first line is the type.
            block = [line for line in block if _indent(line) > depth] or block
        text = _joined([line.strip() for line in block])
        self.result = text if is_numpy else _without_type(text)

    def _field(self, lines, at):
        """The line after a field of reST that begins here, or None."""
        field = REST_FIELD.match(lines[at])
        if field is None:
            return None
        kind, of, text = field[1].lower(), field[2].split(), field[3]
        end = _end_of_block(lines, at + 1, 0)
        text = _joined([text, *(line.strip() for line in lines[at + 1 : end])])
        if kind in REST_PARAMETERS and of:
            self.parameters.setdefault(of[-1].lstrip("*"), text)
        elif kind in RESULTS:
            self.result = text
        elif kind not in ("type", "rtype", "raises", "raise", "except", "exception"):
            return None
        return end


def _keep(kept, lines, at):
    kept.append(lines[at].rstrip())
    return at + 1


def _indent(line):
    return len(line) - len(line.lstrip())


def _end_of_block(lines, begin, depth):
    """The first line from `begin` on that is not further in than `depth`; empty lines at the end are left."""
    end = begin
    for at in range(begin, len(lines)):
        if lines[at].strip():
            if _indent(lines[at]) <= depth:
                break
            end = at + 1
    return end


def _end_of_numpy(lines, begin):
    """The line before the next title that is underlined."""
    for at in range(begin, len(lines) - 1):
        if lines[at].strip() and re.fullmatch(r"-{3,}\s*", lines[at + 1]):
            return at
    return len(lines)


def _without_type(text):
    written, colon, rest = text.partition(": ")
    begin, end = written.find("["), written.rfind("]")
    if 0 <= begin < end:
        written = written[:begin] + written[end + 1 :]
    return rest.strip() if colon and RESULT_TYPE.fullmatch(written.strip()) else text


def _joined(texts):
    return " ".join(text for text in texts if text)
