"""Makes the file for `tools.embeddings` of a wheel of WordLlama: tool_embeddings.py WHEEL FILE [DIMENSIONS].

Each vector of the table is stored as bytes with one scale; src/tool-search/embeddings.rs describes the form of the file.
"""

import json
import struct
import sys
import zipfile

MAGIC = b"sekisho embeddings 1\n"
WEIGHTS = "wordllama/weights/l2_supercat_256.safetensors"
TOKENIZER = "wordllama/tokenizers/l2_supercat_tokenizer_config.json"


def main(wheel: str, file: str, kept: int = 256) -> None:
    with zipfile.ZipFile(wheel) as packed:
        weights = packed.read(WEIGHTS)
        vocabulary = json.loads(packed.read(TOKENIZER))["model"]["vocab"]
    (length,) = struct.unpack_from("<Q", weights)
    header = json.loads(weights[8 : 8 + length])["embedding.weight"]
    count, dimensions = header["shape"]
    assert header["dtype"] == "F16" and len(vocabulary) == count
    texts = sorted(vocabulary, key=vocabulary.get)
    with open(file, "wb") as out:
        out.write(MAGIC + struct.pack("<II", count, kept))
        for token, text in enumerate(texts):
            row = struct.unpack_from(f"<{kept}e", weights, 8 + length + token * dimensions * 2)
            scale = max(map(abs, row)) / 127 or 1.0
            name = text.encode()
            values = [round(value / scale) for value in row]
            out.write(struct.pack("<B", len(name)) + name + struct.pack(f"<f{kept}b", scale, *values))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:4]))
