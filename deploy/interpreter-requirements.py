"""Prints what pip needs to fetch an interpreter's package: its name, version and SHA-256 sum, from its manifest."""

import sys
import tomllib

with open(sys.argv[1], "rb") as file:
    manifest = tomllib.load(file)
origin = manifest["origin"]
print(f"{origin['package']}=={manifest['version']} --hash=sha256:{origin['sha256']}")
