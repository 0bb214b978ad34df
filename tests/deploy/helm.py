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
    "replicas": {
        "replicaCount": 3,
        "cluster": {"enabled": True, "database": {"secret": "database", "key": "url"}},
        "networkPolicy": {"egress": {"enabled": True, "database": {"port": 5433, "to": [{"podSelector": {"matchLabels": {"app": "db"}}}]},
                                     "rules": [{"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}], "ports": [{"port": 443}]}]}},
    },
    "autoscaled": {
        "cluster": {"enabled": True, "forwarding": {"enabled": True}},
        "autoscaling": {"enabled": True, "maxReplicas": 20},
        "podDisruptionBudget": {"maxUnavailable": "25%"},
        "config": {"server": {"shutdown_delay_seconds": 8}},
        "networkPolicy": {"egress": {"enabled": True}},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule",
                                       "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "sekisho"}}}],
    },
}
REFUSED = {
    "a misspelt key": {"perisstence": {}},
    "a listener of its own": {"config": {"server": {"listen": "127.0.0.1:1"}}},
    "pods without a database": {"replicaCount": 2},
    "a changing number of pods without a database": {"autoscaling": {"enabled": True}},
    "a claim for several pods": {"cluster": {"enabled": True}, "persistence": {"existingClaim": "claim"}},
    "a cluster without a secret": {"cluster": {"enabled": True}, "existingSecret": ""},
    "a pod that is killed while it drains": {"cluster": {"enabled": True}, "config": {"server": {"shutdown_delay_seconds": 15}}},
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
        kinds, manifests = set(), {}
        for manifest in rendered(values):
            kind = manifest["kind"]
            kinds.add(kind)
            manifests.setdefault(kind, manifest)
            if kind not in FOREIGN:
                kubernetes_validate.validate(manifest, "1.31", strict=True)
            if kind == "ConfigMap" and "sekisho.yaml" in manifest["data"]:
                (folder / f"{case.replace(' ', '-')}.yaml").write_text(manifest["data"]["sekisho.yaml"])
            if kind == "PrometheusRule":
                (folder / "alerts.yaml").write_text(yaml.safe_dump(manifest["spec"]))
            if kind == "StatefulSet":
                check_pod(manifest["spec"])
        if values.get("cluster"):
            check_cluster(values, manifests)
        else:
            assert manifests["StatefulSet"]["spec"]["replicas"] == 1 and not kinds & {"PodDisruptionBudget", "HorizontalPodAutoscaler"}
        assert {"StatefulSet", "Service", "ConfigMap", "NetworkPolicy"} <= kinds, (case, kinds)
        print(f"{case}: {', '.join(sorted(kinds))}")
    for case, values in REFUSED.items():
        try:
            list(rendered(values))
        except helm.HelmError as refusal:
            print(f"refused, {case}: {str(refusal).splitlines()[0]}")
        else:
            raise AssertionError(f"accepted: {case}")


def check_cluster(values, manifests):
    spec = manifests["StatefulSet"]["spec"]
    pod = spec["template"]["spec"]
    config = yaml.safe_load(manifests["ConfigMap"]["data"]["sekisho.yaml"])
    assert config["cluster"]["enabled"] and config["store"]["url"] == "${SEKISHO_DATABASE_URL}", config
    assert config["server"]["shutdown_delay_seconds"] + 30 < pod["terminationGracePeriodSeconds"], config
    assert config["auth"]["api_keys"], "what the values say stays"
    assert pod["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    budget = manifests["PodDisruptionBudget"]["spec"]
    assert budget["selector"] == spec["selector"]
    rules = manifests["NetworkPolicy"]["spec"]
    own = [{"podSelector": spec["selector"]}]
    if values["cluster"].get("forwarding"):
        assert config["cluster"] == {"enabled": True, "address": "${POD_IP}:8790", "secret": "${SEKISHO_CLUSTER_SECRET}"}, config
        assert {"ports": [{"port": "internal"}], "from": own} in rules["ingress"], rules
        assert {"ports": [{"port": 8790}], "to": own} in rules["egress"], rules
    else:
        assert config["cluster"] == {"enabled": True}, config
        assert {"ports": [{"port": 5433}], "to": [{"podSelector": {"matchLabels": {"app": "db"}}}]} in rules["egress"], rules
        assert spec["replicas"] == 3
    if values.get("autoscaling"):
        scaler = manifests["HorizontalPodAutoscaler"]["spec"]
        assert "replicas" not in spec and scaler["scaleTargetRef"]["name"] == manifests["StatefulSet"]["metadata"]["name"]


def check_pod(spec):
    pod = spec["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    names = {volume["name"] for volume in pod["volumes"]}
    names |= {claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates") or []}
    for interpreter in pod.get("initContainers", []):
        assert interpreter["image"].endswith("-python"), "the image that has the package of the interpreter"
    for container in pod["containers"] + pod.get("initContainers", []):
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"], security
        assert {mount["name"] for mount in container["volumeMounts"]} <= names, names


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
