"""Lints the Helm chart with Helm's own library, renders it with several values, and validates what comes out against the
schemas of Kubernetes. Prints each rendered configuration file, for the gateway to check: `helm.py FOLDER`."""

import pathlib
import sys

import helm_python as helm
import kubernetes_validate
import yaml

CHART = pathlib.Path(__file__).parents[2] / "deploy" / "helm" / "sekisho"
# Resources of the Prometheus operator have no schema in Kubernetes itself.
FOREIGN = {"ServiceMonitor", "PrometheusRule"}
CASES = {
    "defaults": {},
    "everything": {
        "policies": {"tools.rego": "package tools\n\ndeny[msg] {\n    false\n    msg := \"never\"\n}\n"},
        "python": {"enabled": True, "storageClass": "fast"},
        "ingress": {"enabled": True, "className": "nginx", "tlsSecret": "certificate"},
        "monitoring": {"enabled": True},
        "networkPolicy": {"from": [{"podSelector": {"matchLabels": {"app": "agent"}}}]},
        "nodeSelector": {"kubernetes.io/arch": "amd64"},
        "podAnnotations": {"team": "agents"},
    },
    "own claim": {"persistence": {"existingClaim": "claim"}},
}
REFUSED = {
    "a misspelt key": {"perisstence": {}},
    "a listener of its own": {"config": {"server": {"listen": "127.0.0.1:1"}}},
}


def rendered(values):
    with helm.Chart.load(CHART) as chart:
        for name, text in chart.render(values, name="test", namespace="tools").items():
            if name.endswith(".yaml"):
                yield from (manifest for manifest in yaml.safe_load_all(text) if manifest)


def main(folder):
    for case, values in CASES.items():
        # 0 unknown, 1 information, 2 warning, 3 error.
        report = helm.lint(CHART, values, strict=True)
        assert report["total_charts_linted"] == 1 and not report["errors"], report
        assert all(message["severity"] == 1 for message in report["messages"]), report
        kinds = set()
        for manifest in rendered(values):
            kind = manifest["kind"]
            kinds.add(kind)
            if kind not in FOREIGN:
                kubernetes_validate.validate(manifest, "1.31", strict=True)
            if kind == "ConfigMap" and "sekisho.yaml" in manifest["data"]:
                (folder / f"{case.replace(' ', '-')}.yaml").write_text(manifest["data"]["sekisho.yaml"])
            if kind == "PrometheusRule":
                (folder / "alerts.yaml").write_text(yaml.safe_dump(manifest["spec"]))
            if kind == "StatefulSet":
                check_pod(manifest["spec"])
        assert {"StatefulSet", "Service", "ConfigMap", "NetworkPolicy"} <= kinds, (case, kinds)
        print(f"{case}: {', '.join(sorted(kinds))}")
    for case, values in REFUSED.items():
        try:
            list(rendered(values))
        except helm.HelmError as refusal:
            print(f"refused, {case}: {str(refusal).splitlines()[0]}")
        else:
            raise AssertionError(f"accepted: {case}")


def check_pod(spec):
    assert spec["replicas"] == 1
    pod = spec["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    names = {volume["name"] for volume in pod["volumes"]}
    names |= {claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates") or []}
    for container in pod["containers"] + pod.get("initContainers", []):
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"], security
        assert {mount["name"] for mount in container["volumeMounts"]} <= names, names


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
