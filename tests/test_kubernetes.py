"""The manifests of ``deploy/kubernetes`` do what their comments say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

import program

FOLDER = Path(__file__).parent.parent / "deploy" / "kubernetes"
DOCUMENTS: list[dict[str, Any]] = [
    document for file in sorted(FOLDER.glob("*.yaml")) for document in yaml.safe_load_all(file.read_text())
]
SETTINGS: dict[str, str] = next(one["data"] for one in DOCUMENTS if one["kind"] == "ConfigMap")


def setting(file: str, name: str) -> str:
    """Give a setting of a file of the manifests."""
    found = re.search(rf'^{name} = "(.*)"$', SETTINGS[file], re.MULTILINE)
    assert found is not None, (file, name)
    return found[1]


def pods() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Give each object that makes pods, and the specification of its pods."""
    for document in DOCUMENTS:
        if "template" in document.get("spec", {}):
            yield document, document["spec"]["template"]["spec"]


def switches() -> Iterator[tuple[dict[str, Any], dict[str, Any], str]]:
    """Give the pods of switches, with their container and the name of their file of settings."""
    for _, pod in pods():
        (container,) = pod["containers"]
        if container["args"][0] == "switch":
            yield pod, container, Path(container["args"][container["args"].index("--config") + 1]).name


def test_every_pod_has_its_host_s_network_and_no_variables_of_services() -> None:
    assert [document["kind"] for document, _ in pods()] == ["DaemonSet", "Deployment", "Job"]
    for document, pod in pods():
        assert (pod["hostNetwork"], pod["enableServiceLinks"]) == (True, False), document["metadata"]["name"]
        labels, selector = document["spec"]["template"]["metadata"]["labels"], document["spec"].get("selector")
        assert selector is None or selector["matchLabels"] == labels, document["metadata"]["name"]


def test_a_switch_takes_the_settings_of_the_manifests(tmp_path: Path) -> None:
    for name, text in SETTINGS.items():
        file = tmp_path / name
        # The parent's name is the cluster's alone.
        file.write_text(text.replace("tributary-top.tributary.svc", "127.0.0.1"))
        result = program.run("switch", "--check", str(file))
        assert result.returncode == 0, result.stderr


def test_probes_ask_where_the_switch_listens_and_the_memory_is_enough() -> None:
    seen = set()
    for pod, container, name in switches():
        seen.add(name)
        port = int(setting(name, "listen").rpartition(":")[2])
        probes = {kind: container[kind]["httpGet"] for kind in ("livenessProbe", "readinessProbe")}
        assert {probe["port"] for probe in probes.values()} == {port}
        assert probes["livenessProbe"]["path"] == "/livez", "a parent that is down needs no restart here"
        assert probes["readinessProbe"]["path"] == "/readyz"
        assert setting(name, "memory") == "512 MiB"
        assert container["resources"]["limits"]["memory"] == "1Gi"
        assert pod["terminationGracePeriodSeconds"] > 10, "`finish` is 10 s"
    assert seen == set(SETTINGS)


def test_the_switch_below_finds_its_parent_by_a_headless_service() -> None:
    (service,) = (one for one in DOCUMENTS if one["kind"] == "Service")
    host, _, port = setting("switch.toml", "parent").rpartition(":")
    name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
    assert (host, service["spec"]["clusterIP"]) == (f"{name}.{namespace}.svc", "None")
    assert setting("top.toml", "listen").endswith(f":{port}")
    labels = [document["spec"]["template"]["metadata"]["labels"] for document, _ in pods()]
    assert labels.count(service["spec"]["selector"]) == 1
    below = next(pod for pod, _, file in switches() if file == "switch.toml")
    assert below["dnsPolicy"] == "ClusterFirstWithHostNet", "with the host's network a pod asks the host's servers else"


def test_a_worker_finds_the_switch_of_its_own_node() -> None:
    worker = next(pod for document, pod in pods() if document["kind"] == "Job")
    switch = next(pod for pod, _, file in switches() if file == "switch.toml")
    (container,) = worker["containers"]
    fields = {one["name"]: one["valueFrom"]["fieldRef"]["fieldPath"] for one in container["env"]}
    assert fields["TRIBUTARY_SWITCH"] == "status.hostIP"
    assert worker["nodeSelector"] == switch["nodeSelector"], "there is a switch on each of its nodes"
    assert setting("switch.toml", "listen").endswith(":17777"), "the port where none is named"


def test_no_switch_runs_as_root_or_writes_its_file_system() -> None:
    for _, container, name in switches():
        security = container["securityContext"]
        assert (security["runAsNonRoot"], security["readOnlyRootFilesystem"]) == (True, True), name
        assert (security["allowPrivilegeEscalation"], security["capabilities"]["drop"]) == (False, ["ALL"]), name
