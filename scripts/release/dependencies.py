"""Lists what is compiled into the program: the texts of the licences, which packages must contain, and a CycloneDX list.

`dependencies.py METADATA TREE TEXTS LIST`, where METADATA is the output of `cargo metadata`, and TREE that of `cargo tree`. Of the
packages those of TREE count: METADATA has those too that only tests and their features need.
"""

import collections
import datetime
import json
import os
import pathlib
import re
import sys
import tomllib
import uuid

LICENCE = re.compile(r"(un)?licen[sc]e|copying|notice|copyright", re.IGNORECASE)
CODE = {".c", ".go", ".h", ".html", ".js", ".json", ".pl", ".py", ".rs", ".sh", ".toml", ".yml"}
ROOT = "sekisho"


def needed(metadata, tree):
    """The packages of the tree, with the ids of those that each uses."""
    names = {" ".join(line.split()[:2]) for line in tree.splitlines()}
    packages = {package["id"]: package for package in metadata["packages"] if f"{package['name']} v{package['version']}" in names}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}

    def uses(identity):
        deps = (dep for dep in nodes[identity]["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"]))
        return [dep["pkg"] for dep in deps if dep["pkg"] in packages]

    return {identity: (packages[identity], uses(identity)) for identity in sorted(packages)}


def expression(package):
    """An SPDX expression: crates of old have a slash for OR."""
    return re.sub(r"\s*/\s*", " OR ", package["license"] or "") or f"see its file {package['license_file']}"


def texts(packages):
    """The texts of licences, each once, below the names of the packages that have it."""
    holders, without = collections.defaultdict(list), []
    for package in packages:
        folder = pathlib.Path(package["manifest_path"]).parent
        files = [path for path in sorted(folder.rglob("*")) if is_licence(path.relative_to(folder)) and path.is_file()]
        name = f"{package['name']} {package['version']}"
        for text in {path.read_text(errors="replace").strip() for path in files}:
            holders[text].append(name)
        if not files:
            by = f", by {', '.join(package['authors'])}" if package["authors"] else ""
            without.append(f"{name}: {expression(package)}{by}")
    yield "Sekisho contains these packages. Their sources are at https://crates.io/crates/NAME/VERSION.\n"
    yield from (f"{package['name']} {package['version']}: {expression(package)}" for package in packages)
    yield "\nThe sources of these have no text of their licence. It is that of another package below.\n"
    yield from without
    for text, names in sorted(holders.items(), key=lambda entry: entry[1]):
        yield f"\n{'=' * 80}\n{', '.join(sorted(set(names)))}\n{'=' * 80}\n\n{text}"


def is_licence(path):
    return LICENCE.match(path.name) and path.suffix not in CODE


def component(package, checksums):
    entry = {
        "type": "application" if package["name"] == ROOT else "library",
        "bom-ref": reference(package),
        "name": package["name"],
        "version": package["version"],
        "purl": reference(package),
        "licenses": [{"expression": expression(package)}],
    }
    if checksum := checksums.get((package["name"], package["version"])):
        entry["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package["repository"]:
        entry["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return entry


def reference(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def listed(packages, checksums):
    """The list in CycloneDX 1.5, with the sums that Cargo.lock has."""
    components = {identity: component(package, checksums) for identity, (package, _) in packages.items()}
    root = next(entry for entry in components.values() if entry["name"] == ROOT)
    moment = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(components))}",
        "version": 1,
        "metadata": {"timestamp": moment.isoformat(), "component": root},
        "components": [entry for entry in components.values() if entry is not root],
        "dependencies": [
            {"ref": components[identity]["bom-ref"], "dependsOn": sorted({components[used]["bom-ref"] for used in uses})}
            for identity, (_, uses) in packages.items()
        ],
    }


def main(metadata, tree, texts_file, list_file):
    packages = needed(json.loads(pathlib.Path(metadata).read_text()), pathlib.Path(tree).read_text())
    lock = tomllib.loads(pathlib.Path("Cargo.lock").read_text())
    checksums = {(entry["name"], entry["version"]): entry.get("checksum") for entry in lock["package"]}
    foreign = [package for package, _ in packages.values() if package["source"]]
    foreign.sort(key=lambda package: (package["name"], package["version"]))
    pathlib.Path(texts_file).write_text("\n".join(texts(foreign)) + "\n")
    pathlib.Path(list_file).write_text(json.dumps(listed(packages, checksums), indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
