"""The deployment files are valid by published schemas, expose no more than intended, and work."""

import json
import re
import shutil
import socket
import ssl
import subprocess
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import kubernetes_validate
import pytest
import typer
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from costmodel.cli import app
from costmodel.client import Client
from costmodel.paths import Home
from costmodel.serving.extender.app import create_extender
from costmodel.serving.extender.settings import ExtenderSettings
from costmodel.serving.http.settings import Settings
from costmodel.serving.http.tokens import add_token
from tests.served import listening
from tests.synthetic import copied, trained_home

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
UID = 10001


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """The parsed compose file."""
    document: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return document


@pytest.fixture(scope="module")
def manifests() -> dict[str, Any]:
    """The Kubernetes objects, by kind."""
    return {one["kind"]: one for one in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())}


@pytest.fixture(scope="module")
def pod(manifests: dict[str, Any]) -> dict[str, Any]:
    """The pod specification of the Deployment."""
    found: dict[str, Any] = manifests["Deployment"]["spec"]["template"]
    return found


# Schemas


def test_the_compose_file_is_one(compose: dict[str, Any]) -> None:
    """The compose file obeys the Compose specification, and everything that it refers to is defined."""
    schema = resources.files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    jsonschema.validate(compose, json.loads(schema.read_text()))
    for service in compose["services"].values():
        assert set(service.get("networks", ())) <= compose["networks"].keys()
        assert set(service.get("secrets", ())) <= compose["secrets"].keys()
        assert {one["source"] for one in service.get("configs", ())} <= compose["configs"].keys()
        assert {one.partition(":")[0] for one in service.get("volumes", ())} <= compose["volumes"].keys()


def test_the_manifests_are_valid(manifests: dict[str, Any]) -> None:
    """The manifests obey the schemas of the newest Kubernetes of the validator; misspelt fields are errors."""
    for manifest in manifests.values():
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


# The scheduler

_VERB = {"type": "string", "minLength": 1}
# KubeSchedulerConfiguration of kubescheduler.config.k8s.io/v1, as far as it is used here; misspelt fields are errors.
_SCHEDULER_CONFIGURATION = {
    "type": "object",
    "required": ["apiVersion", "kind", "extenders"],
    "additionalProperties": False,
    "properties": {
        "apiVersion": {"const": "kubescheduler.config.k8s.io/v1"},
        "kind": {"const": "KubeSchedulerConfiguration"},
        "leaderElection": {"type": "object"},
        "profiles": {"type": "array", "items": {"type": "object", "required": ["schedulerName"]}},
        "extenders": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["urlPrefix"],
                "additionalProperties": False,
                "properties": {
                    "urlPrefix": {"type": "string", "format": "uri"},
                    **{f"{name}Verb": _VERB for name in ("preempt", "filter", "prioritize", "bind")},
                    "weight": {"type": "integer", "minimum": 1},
                    "enableHTTPS": {"type": "boolean"},
                    "tlsConfig": {"type": "object"},
                    "httpTimeout": {"type": "string", "pattern": "^[0-9]+(ms|s)$"},
                    "nodeCacheCapable": {"type": "boolean"},
                    "managedResources": {"type": "array"},
                    "ignorable": {"type": "boolean"},
                },
            },
        },
    },
}


@pytest.fixture(scope="module")
def scheduling() -> list[dict[str, Any]]:
    """The Kubernetes objects of the scheduler."""
    return list(yaml.safe_load_all((DEPLOY / "kubernetes-scheduler.yaml").read_text()))


def test_the_manifests_of_the_scheduler_are_valid(scheduling: list[dict[str, Any]]) -> None:
    """The manifests and the configuration in them obey their schemas, and refer to one another."""
    for manifest in scheduling:
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
    by_kind = {one["kind"]: one for one in scheduling}
    pod = by_kind["Deployment"]["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == by_kind["ServiceAccount"]["metadata"]["name"]
    assert pod["volumes"][0]["configMap"]["name"] == by_kind["ConfigMap"]["metadata"]["name"]
    for one in scheduling:
        for subject in one.get("subjects", ()):
            assert subject["name"] == by_kind["ServiceAccount"]["metadata"]["name"]
    for container in pod["containers"]:
        assert "memory" in container["resources"]["limits"]
        assert container["securityContext"]["readOnlyRootFilesystem"]


def test_the_scheduler_reaches_its_extender(scheduling: list[dict[str, Any]]) -> None:
    """The configuration is one of kube-scheduler, with the address and the verbs of the extender beside it."""
    (text,) = (one["data"]["scheduler.yaml"] for one in scheduling if one["kind"] == "ConfigMap")
    configuration = yaml.safe_load(text)
    jsonschema.validate(configuration, _SCHEDULER_CONFIGURATION)
    (extender,) = configuration["extenders"]
    (deployment,) = (one for one in scheduling if one["kind"] == "Deployment")
    _, container = deployment["spec"]["template"]["spec"]["containers"]
    program, command, *options = container["command"]
    assert program == "costmodel"
    parameters = {one.name: one for one in typer.main.get_command(app).commands[command].params}  # type: ignore[attr-defined]
    known = {option for one in parameters.values() for option in one.opts}
    assert {option for option in options if option.startswith("--")} <= known
    assert extender["urlPrefix"] == f"http://{parameters['host'].default}:{parameters['port'].default}"
    routes = {route.path for route in create_extender(ExtenderSettings(""), Client("http://unused")).routes}  # type: ignore[attr-defined]
    assert {f"/{extender['filterVerb']}", f"/{extender['prioritizeVerb']}"} <= routes


def test_the_service_admits_the_scheduler(scheduling: list[dict[str, Any]], manifests: dict[str, Any]) -> None:
    """The network policy of the service has the labels of the scheduler's pod, and the URL is that of the Service."""
    (deployment,) = (one for one in scheduling if one["kind"] == "Deployment")
    template = deployment["spec"]["template"]
    admitted = [one for rule in manifests["NetworkPolicy"]["spec"]["ingress"] for one in rule["from"]]
    assert {"podSelector": {"matchLabels": template["metadata"]["labels"]}} in admitted
    service = manifests["Service"]
    assert f"http://{service['metadata']['name']}" in template["spec"]["containers"][1]["command"]
    assert service["spec"]["ports"][0]["port"] == 80


# Exposed ports


def test_nothing_but_the_proxy_is_published(compose: dict[str, Any]) -> None:
    """Other hosts cannot reach the database, MLflow or the service directly."""
    published = {name: service.get("ports", []) for name, service in compose["services"].items()}
    public = {name for name, ports in published.items() if any(not port.startswith("127.0.0.1:") for port in ports)}
    assert public == {"proxy"}
    assert published["service"] == []
    with_proxy = set(compose["services"]["proxy"]["networks"])
    assert {name for name, one in compose["services"].items() if with_proxy & set(one["networks"])} == {
        "proxy", "service",
    }  # fmt: skip


def test_containers_come_back_and_have_limits(compose: dict[str, Any], pod: dict[str, Any]) -> None:
    """Containers restart after crash and reboot, have a memory limit, and bound their in-memory folders."""
    for name, service in compose["services"].items():
        assert service.get("restart") == "unless-stopped" or name == "training"
        assert "mem_limit" in service
        assert "healthcheck" in service or name == "service"  # the service's image defines its own
        assert all("size=" in folder for folder in service.get("tmpfs", ()))
    assert "HEALTHCHECK" in (DEPLOY / "Containerfile").read_text()
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["limits"].keys() >= {"memory", "ephemeral-storage"}
    assert all("sizeLimit" in volume["emptyDir"] for volume in pod["spec"]["volumes"] if "emptyDir" in volume)


def test_uploads_are_written_to_a_disk(compose: dict[str, Any], pod: dict[str, Any]) -> None:
    """The upload folder of the settings is on a volume, not in memory."""
    folder = re.search(r"COSTMODEL_SERVE_SCRATCH=(\S+)", (DEPLOY / "Containerfile").read_text())
    assert folder
    assert f"uploads:{folder[1]}" in compose["services"]["service"]["volumes"]
    (container,) = pod["spec"]["containers"]
    assert _environment(container)["COSTMODEL_SERVE_SCRATCH"] == folder[1]
    mounted = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    (volume,) = [volume for volume in pod["spec"]["volumes"] if volume["name"] == mounted[folder[1]]]
    assert volume["emptyDir"].get("medium", "") == ""


def test_settings_are_known_to_the_service(compose: dict[str, Any], pod: dict[str, Any]) -> None:
    """Each environment variable is a setting of the service with a valid value."""
    (container,) = pod["spec"]["containers"]
    for environment in (compose["services"]["service"]["environment"], _environment(container)):
        given = {name.removeprefix("COSTMODEL_SERVE_").lower(): value for name, value in environment.items()
                 if name.startswith("COSTMODEL_SERVE_")}  # fmt: skip
        assert given.keys() <= Settings.model_fields.keys()
        Settings(**given)


def test_the_store_is_spelt_in_one_way() -> None:
    """The store URL names the driver in all deployment files."""
    urls = [url for path in DEPLOY.iterdir() for url in re.findall(r"postgres\w*(?:\+\w+)?://", path.read_text())]
    assert set(urls) == {"postgresql+psycopg://"}
    assert len(urls) >= 4


def test_probes_do_not_restart_for_a_database_that_is_down(pod: dict[str, Any]) -> None:
    """Only the readiness probe depends on the store; ports and labels of all objects match."""
    (container,) = pod["spec"]["containers"]
    paths = {name: probe["httpGet"]["path"] for name, probe in container.items() if name.endswith("Probe")}
    assert paths == {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}


def test_pods_talk_to_few(manifests: dict[str, Any], pod: dict[str, Any]) -> None:
    """The network policy selects the Deployment's pods, names their port and allows two outgoing ports only."""
    policy = manifests["NetworkPolicy"]["spec"]
    assert policy["podSelector"]["matchLabels"] == pod["metadata"]["labels"]
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    ports = {port["name"] for container in pod["spec"]["containers"] for port in container["ports"]}
    assert {port["port"] for rule in policy["ingress"] for port in rule["ports"]} <= ports
    assert all(rule["from"] for rule in policy["ingress"])
    assert {port["port"] for rule in policy["egress"] for port in rule["ports"]} == {5432, 53}
    monitor = yaml.safe_load((DEPLOY / "monitoring.yaml").read_text())["spec"]
    assert monitor["selector"]["matchLabels"] == pod["metadata"]["labels"]
    assert {endpoint["port"] for endpoint in monitor["podMetricsEndpoints"]} <= ports


def test_no_container_runs_as_root(compose: dict[str, Any], pod: dict[str, Any]) -> None:
    """The image sets a user, and containers have no additional privileges."""
    stages = (DEPLOY / "Containerfile").read_text().split("\nFROM ")
    assert re.findall(r"^USER (.+)$", stages[-1], re.MULTILINE) == [str(UID)]
    assert (pod["spec"]["securityContext"]["runAsUser"], pod["spec"]["securityContext"]["runAsNonRoot"]) == (UID, True)
    for name in ("proxy", "service", "training"):
        service = compose["services"][name]
        assert (service["cap_drop"], service["read_only"]) == (["ALL"], True)
        assert "no-new-privileges:true" in service["security_opt"]


def _environment(container: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["value"] for one in container["env"] if "value" in one}


# The image


def test_the_image_is_made_of_what_it_needs() -> None:
    """Docker's build context contains all copied files, and no tests, data, stores, secrets or git history."""
    build = pytest.importorskip("docker.utils.build", reason="reads .dockerignore as engines do")
    patterns = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    context = {Path(path) for path in build.exclude_paths(str(ROOT), patterns)}
    copied_in = re.findall(r"^COPY (?!--from)(.+) \S+$", (DEPLOY / "Containerfile").read_text(), re.MULTILINE)
    sources = {Path(one) for line in copied_in for one in line.split()}
    assert sources <= context
    rest = {path for path in context if not any(path == source or source in path.parents for source in sources)}
    assert rest <= {Path("deploy"), Path(".dockerignore")}
    assert not [path for path in context if path.suffix in (".pyc", ".onnx", ".db", ".parquet")]


def test_the_image_has_fixed_versions() -> None:
    """The constraints pin every dependency to a version within the package's accepted range."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [line for line in (DEPLOY / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    pinned = {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}
    extras = [project["optional-dependencies"][extra] for extra in ("serve", "postgres", "parquet", "train")]
    for requirement in map(Requirement, [*project["dependencies"], *(line for extra in extras for line in extra)]):
        assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)]), requirement


# The proxy


@contextmanager
def _proxied(url: str, folder: Path, prefix: str = "") -> Iterator[httpx.Client]:
    """Yields a client of a service behind nginx, with the configuration of deploy/ except addresses and paths."""
    certificate = folder / "tls.crt"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "tls.key",
         "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    text = (DEPLOY / "nginx.conf").read_text()
    changed = {
        "service:8000": url.removeprefix("http://"), "listen 8443": f"listen 127.0.0.1:{port}", "/tmp/": f"{folder}/",
        "/run/secrets": str(folder), "/dev/stdout": f"{folder}/access.log", "/dev/stderr": f"{folder}/error.log",
    }  # fmt: skip
    if prefix:
        changed |= {
            "location / {": f"location {prefix}/ {{", "proxy_pass http://costmodel;": "proxy_pass http://costmodel/;",
            "location = /metrics": f"location = {prefix}/metrics",
        }  # fmt: skip
    for old, new in changed.items():
        assert old in text, old
        text = text.replace(old, new)
    (folder / "nginx.conf").write_text(text)
    assert NGINX
    command = [NGINX, "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf"), "-g", "daemon off;"]
    tested = subprocess.run([*command, "-t"], capture_output=True, text=True)
    assert tested.returncode == 0, tested.stderr
    running = subprocess.Popen(command)
    try:
        context = ssl.create_default_context(cafile=certificate)
        with httpx.Client(base_url=f"https://127.0.0.1:{port}{prefix}", verify=context, timeout=60) as client:
            while True:
                try:
                    client.get("/healthz")
                    break
                except httpx.ConnectError:
                    assert running.poll() is None, (folder / "error.log").read_text()
                    time.sleep(0.05)
            yield client
    finally:
        running.terminate()
        running.wait()


def _status_of_a_long_body(client: httpx.Client, certificate: Path) -> bytes:
    """Returns the status line for a request that announces a body above the size limit and sends none of it."""
    context = ssl.create_default_context(cafile=certificate)
    host, port = client.base_url.host, client.base_url.port or 443
    with context.wrap_socket(socket.create_connection((host, port)), server_hostname=host) as connection:
        path = f"{client.base_url.path}v1/predict"
        connection.sendall(f"POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-length: {1025 << 20}\r\n\r\n".encode())
        return connection.makefile("rb").readline().strip()


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with a trained champion, to be changed."""
    trained = trained_home(tmp_path_factory.getbasetemp() / "trained-home")
    return copied(trained, tmp_path_factory.mktemp("deployed") / "home")


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
@pytest.mark.parametrize("prefix", ["", "/costmodel"])
def test_the_proxy_speaks_tls_and_sets_limits(
    own: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The proxy with deploy/'s configuration serves TLS, at the root and below a prefix, and limits body sizes."""
    token = add_token(tmp_path / "tokens", "me", scopes=("admin",))
    tmp_path.chmod(0o755)
    with (
        caplog.at_level("INFO", "costmodel.service"),
        listening(own, monkeypatch, tokens=tmp_path / "tokens") as url,
        _proxied(url, tmp_path, prefix) as client,
    ):
        assert client.get("/readyz").json()["status"] == "ok"
        assert client.get("/v1/systems").status_code == 401
        client.headers["authorization"] = f"Bearer {token}"
        assert client.get("/v1/systems").json()["systems"]
        assert client.get("/metrics").status_code == 404
        assert httpx.get(f"{url}/metrics", headers=client.headers).status_code == 200
        assert client.get("/healthz", headers={"x-long": "a" * 40_000}).status_code == 400
        assert _status_of_a_long_body(client, tmp_path / "tls.crt") == b"HTTP/1.1 413 Request Entity Too Large"
        assert client.get("/v1/systems", headers={"x-forwarded-for": "203.0.113.9"}).status_code == 200
        assert "strict-transport-security" in client.get("/").headers
    clients = {record.fields["client"] for record in caplog.records if "client" in getattr(record, "fields", {})}
    assert clients == {"127.0.0.1"}  # not the address that a client claims in a header
    assert token not in (tmp_path / "access.log").read_text()
