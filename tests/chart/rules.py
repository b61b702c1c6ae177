"""What must hold of every object of a release, whatever the values: each rule lists what breaks it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from typer.testing import CliRunner

from local_tracker.agent.main import parse as parse_local_tracker
from tests.chart.rendering import Object, Rendered, group_of
from tracker.cli.app import app
from tracker.client.pipeline_file import load_pipeline

Rule = Callable[[Rendered], Iterator[str]]

STOP_S = 10
"""How long a process may need to end in good order, beside what it sleeps before."""
ALLOWED_VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected",
    "secret",
}  # fmt: skip
"""Of restricted pods."""
_SECRET = re.compile(r"(?i)(password|passwd|secret|token)=|://[^/\s]*@")


def containers(spec: Object) -> list[Object]:
    return [*spec.get("initContainers", []), *spec.get("containers", [])]


def own_containers(rendered: Rendered) -> Iterator[tuple[str, Object, Object]]:
    """Where, the pod's spec, the container: those that run Lowmark's image."""
    for where, _, spec in rendered.pod_specs():
        for container in containers(spec):
            if "image" in container:
                yield f"{where} {container['name']}", spec, container


def matches(selector: Object, labels: Object) -> bool:
    return all(labels.get(key) == value for key, value in selector.items())


def pods_by(rendered: Rendered, selector: Object) -> list[tuple[str, Object, Object]]:
    return [pod for pod in rendered.pod_specs() if matches(selector, pod[1].get("labels", {}))]


def tracker(rendered: Rendered) -> tuple[Object, Object]:
    """The stateful set, and its container."""
    (found,) = rendered.kind("StatefulSet")
    return found, found["spec"]["template"]["spec"]["containers"][0]


def servers(rendered: Rendered) -> Iterator[tuple[Object, Object]]:
    """What runs processes that are asked, trackers and relays, each with its container."""
    for found in (*rendered.kind("StatefulSet"), *rendered.kind("Deployment")):
        yield found, found["spec"]["template"]["spec"]["containers"][0]


def argument(container: Object, option: str) -> str:
    """The value of `--option=value`; empty if it is not given."""
    for argument in container["args"]:
        if argument.startswith(f"{option}="):
            return str(argument.removeprefix(f"{option}="))
    return ""


def setting(container: Object, name: str) -> str:
    """The value of `--set=name=value`; empty if it is not given."""
    return argument(container, f"--set={name}")


# --- pods -----------------------------------------------------------------------------------------


def pods_are_restricted(rendered: Rendered) -> Iterator[str]:
    """The restricted profile of the pod security standards, and more: a root that is read only."""
    host_path = bool(rendered.values["localTrackers"]["spoolHostPath"])
    for where, metadata, spec in rendered.pod_specs():
        pod = spec.get("securityContext", {})
        if pod.get("runAsNonRoot") is not True or not pod.get("runAsUser"):
            yield f"{where} may run as root"
        if pod.get("seccompProfile", {}).get("type") != "RuntimeDefault":
            yield f"{where} has no seccomp profile"
        for name in ("hostNetwork", "hostPID", "hostIPC"):
            if spec.get(name):
                yield f"{where} has {name}"
        for volume in spec.get("volumes", []):
            if "hostPath" in volume and not host_path:
                yield f"{where} mounts a path of the host"
            if not ALLOWED_VOLUMES & set(volume) and not host_path:
                yield f"{where} has a volume of another kind: {volume['name']}"
            tokens = [
                s
                for s in volume.get("projected", {}).get("sources", [])
                if "serviceAccountToken" in s
            ]
            if tokens and metadata["labels"]["app.kubernetes.io/component"] != "credentials":
                yield f"{where} has a token of the cluster"
        if pod.get("sysctls") or pod.get("runAsUser") == 0:
            yield f"{where} asks for what restricted pods may not have"
        if spec.get("automountServiceAccountToken") is not False and "serviceAccountName" in spec:
            yield f"{where} has a token of the cluster"
    for where, _, container in own_containers(rendered):
        context = container.get("securityContext", {})
        if context.get("allowPrivilegeEscalation") is not False or context.get("privileged"):
            yield f"{where} may gain privileges"
        if context.get("readOnlyRootFilesystem") is not True:
            yield f"{where} may write to its root"
        if context.get("capabilities") != {"drop": ["ALL"]}:
            yield f"{where} has capabilities"
        if any("hostPort" in port for port in container.get("ports", [])):
            yield f"{where} takes a port of the host"


def resources_are_bounded(rendered: Rendered) -> Iterator[str]:
    for where, spec, container in own_containers(rendered):
        resources = container.get("resources", {})
        if not {"cpu", "memory"} <= set(resources.get("requests", {})):
            yield f"{where} requests no cpu or memory"
        if "memory" not in resources.get("limits", {}):
            yield f"{where} has no limit of memory"
        for volume in spec["volumes"]:
            if volume["name"] == "tmp" and "sizeLimit" not in volume["emptyDir"]:
                yield f"{where}: /tmp has no limit"


def arguments_are_known(rendered: Rendered) -> Iterator[str]:
    """Each command is one that the command line takes, with just these options."""
    for where, _, container in own_containers(rendered):
        words = [re.sub(r"\$\((\w+)\)", _any_value, word) for word in container["args"]]
        if words[0] == "local-tracker":
            try:
                parse_local_tracker(words[1:])
            except SystemExit:
                yield f"{where}: the local tracker does not take {words[1:]}"
            continue
        # With either all options are looked up, and nothing runs.
        result = CliRunner().invoke(
            app, [*words, "--show-config" if words[0] == "serve" else "--help"]
        )
        if result.exit_code:
            yield f"{where}: {result.stderr.strip()}"


def _any_value(found: re.Match[str]) -> str:
    return {"LOWMARK_MEMBER": "0", "LOWMARK_TARGET": "h:1"}.get(found[1], "x")


def variables_are_given(rendered: Rendered) -> Iterator[str]:
    """What `$(NAME)` stands for is in the environment, before what uses it."""
    for where, _, container in own_containers(rendered):
        names = [variable["name"] for variable in container.get("env", [])]
        for word in container["args"]:
            for name in re.findall(r"\$\((\w+)\)", word):
                if name not in names:
                    yield f"{where}: {word} names {name}, which is not in its environment"
        if len(names) != len(set(names)):
            yield f"{where} has a variable twice"


def secrets_stay_secret(rendered: Rendered) -> Iterator[str]:
    """No secret in arguments, in the environment by value, in a config map or among the objects."""
    for where, _, container in own_containers(rendered):
        for word in container["args"]:
            if word.startswith("--store") or _SECRET.search(word):
                yield f"{where}: argument {word.partition('=')[0]} may hold a secret"
        for variable in container.get("env", []):
            if _SECRET.search(f"{variable['name']}={variable.get('value', '')}") and not (
                variable["name"].endswith("_FILE") or "valueFrom" in variable
            ):
                yield f"{where}: {variable['name']} holds a secret by value"
    for o in rendered.objects:
        if o["kind"] == "Secret" and (o.get("data") or o.get("stringData")):
            yield f"Secret/{o['metadata']['name']} would be kept with the release"
        if o["kind"] == "ConfigMap":
            for key, text in o["data"].items():
                if _SECRET.search(text):
                    yield f"ConfigMap/{o['metadata']['name']}: {key} holds a secret"
    own = tracker_certificate(rendered)
    for where, _, spec in rendered.pod_specs():
        for volume in spec.get("volumes", []):
            secret = volume.get("secret", {})
            keys = [item["path"] for item in secret.get("items", [])]
            tracks = where.startswith("StatefulSet")
            if not tracks and own and secret.get("secretName") == own and keys != ["ca.crt"]:
                yield f"{where} has the trackers' certificate, and could act as a shard"
            if "secret" in volume and volume["secret"].get("defaultMode") != 0o440:
                yield f"{where}: secret {volume['name']} can be read by all"


def volumes_fit(rendered: Rendered) -> Iterator[str]:
    """Each mount has its volume and each volume a mount; secrets cannot be written."""
    claims = {
        claim["metadata"]["name"]
        for o in rendered.kind("StatefulSet")
        for claim in o["spec"].get("volumeClaimTemplates", [])
    }
    for where, _, spec in rendered.pod_specs():
        volumes = {volume["name"] for volume in spec.get("volumes", [])}
        if where.startswith("StatefulSet"):
            volumes |= claims
        mounts = [m for c in containers(spec) for m in c.get("volumeMounts", [])]
        names = {mount["name"] for mount in mounts}
        for name in names ^ volumes:
            yield f"{where}: volume {name} is {'not there' if name in names else 'not mounted'}"
        secrets = {v["name"] for v in spec.get("volumes", []) if "secret" in v}
        for mount in mounts:
            if mount["name"] in secrets and not mount.get("readOnly"):
                yield f"{where}: secret {mount['name']} may be written"


def files_are_mounted(rendered: Rendered) -> Iterator[str]:
    """Every path that an argument or variable names lies in a mount."""
    for where, _, container in own_containers(rendered):
        mounts = [mount["mountPath"] for mount in container.get("volumeMounts", [])]
        words = [word.rpartition("=")[2] for word in container["args"]]
        words += [str(v.get("value", "")) for v in container.get("env", [])]
        for word in words:
            path = re.sub(r"^(sqlite|unix):", "", word)
            if path.startswith(("/etc/lowmark", "/var", "/run")) and not any(
                path == mount or path.startswith(f"{mount}/") for mount in mounts
            ):
                yield f"{where}: {path} is not mounted"


def references_exist(rendered: Rendered) -> Iterator[str]:
    """What pods name is in the release, or named in the values."""
    values = rendered.values
    secrets = {
        values["store"]["redis"]["existingSecret"], values["tls"]["existingSecret"],
        values["auth"]["existingSecret"], values["auth"]["clientSecret"],
        values["auth"]["peerSecret"], values["auth"]["adminSecret"], values["tls"]["clientSecret"],
        values["relays"]["tlsSecret"],
        *(s["name"] for s in values["image"]["pullSecrets"]),
        *(
            e["valueFrom"]["secretKeyRef"]["name"]
            for e in values["tracker"]["extraEnv"]
            if "secretKeyRef" in e.get("valueFrom", {})
        ),
    } - {""}  # fmt: skip
    secrets |= {o["metadata"]["name"] for o in rendered.kind("Secret")}
    secrets |= {o["spec"]["secretName"] for o in rendered.kind("Certificate")}
    maps = {"kube-root-ca.crt"} | {o["metadata"]["name"] for o in rendered.kind("ConfigMap")}
    maps |= set(values["pipelineConfigMaps"])
    accounts = {o["metadata"]["name"] for o in rendered.kind("ServiceAccount")}
    accounts |= {values["serviceAccount"]["name"] or "default"} - {""}
    for where, _, spec in rendered.pod_specs():
        named = [v["secret"]["secretName"] for v in spec.get("volumes", []) if "secret" in v]
        named += [s["name"] for s in spec.get("imagePullSecrets", [])]
        for container in containers(spec):
            for variable in container.get("env", []):
                reference = variable.get("valueFrom", {}).get("secretKeyRef")
                named += [reference["name"]] if reference else []
        yield from (f"{where}: there is no secret {n}" for n in named if n not in secrets)
        for volume in spec.get("volumes", []):
            for source in volume.get("projected", {}).get("sources", []):
                if source.get("configMap", {}).get("name", "kube-root-ca.crt") not in maps:
                    yield f"{where}: there is no config map {source['configMap']['name']}"
        if spec.get("serviceAccountName", "default") not in accounts:
            yield f"{where}: there is no service account {spec['serviceAccountName']}"


# --- the set of shards ----------------------------------------------------------------------------


def shards_find_each_other(rendered: Rendered) -> Iterator[str]:
    """Addresses are the pods' names in DNS, which are there before the pods are ready."""
    found, container = tracker(rendered)
    values, spec = rendered.values, found["spec"]
    service = rendered.one("Service", spec["serviceName"])["spec"]
    if service.get("clusterIP") != "None" or not service.get("publishNotReadyAddresses"):
        yield "the peers' service gives no names, or only those of pods that are ready"
    port = values["tracker"]["port"]
    tail = f"{spec['serviceName']}.{rendered.namespace}.svc.{values['clusterDomain']}:{port}"
    pods = pods_of(rendered, found)
    if spec["replicas"] != values["shards"] + values["standbys"]:
        yield f"{spec['replicas']} pods for {values['shards']} shards, {values['standbys']} standbys"
    kept = found["metadata"]["annotations"]
    wanted = {
        "shards": values["shards"], "standbys": values["standbys"],
        "initialShards": kept.get("lowmark.dev/initialShards"),
        "blockSlots": values["tracker"]["settings"]["block_slots"],
    }  # fmt: skip
    if not group_of(found):
        wanted["groups"] = values["groups"]
    if {f"lowmark.dev/{name}": str(value) for name, value in wanted.items()} != kept:
        yield f"the next upgrade would compare with {kept}"
    first = int(kept.get("lowmark.dev/initialShards", 0))
    names = [f"{found['metadata']['name']}-{n}.{tail}" for n in range(max(first, len(pods)))]
    if argument(container, "--peers").split(",") != names[:first]:
        yield f"--peers is {argument(container, '--peers')}, not the names of the first shards' pods"
    if setting(container, "members").split(",") != pods[: values["shards"]]:
        yield f"members is {setting(container, 'members')}, not the names of the shards' pods"
    if not setting(container, "left_file").startswith("/tmp/"):
        yield "what says that a pod's shard has left outlives the pod"
    for job in rendered.kind("Job"):
        args = job["spec"]["template"]["spec"]["containers"][0]["args"]
        if args[0] == "shards" and f"--members={','.join(pods[: values['shards']])}" not in args:
            yield f"{job['metadata']['name']} fits another set"
    if (
        argument(container, "--address").replace("$(POD_NAME)", f"{found['metadata']['name']}-0")
        != pods[0]
    ):
        yield f"--address is {argument(container, '--address')}, not the pod's name"
    if not argument(container, "--listen").startswith("0.0.0.0:"):
        yield "it does not listen on the pod's address"
    for _, where in ((o, o["metadata"]["name"]) for o in rendered.kind("ConfigMap")):
        if where.endswith("-client"):
            target = rendered.one("ConfigMap", where)["data"]["LOWMARK_TARGET"]
            if not {*pods} <= {*target.split(",")}:
                yield f"clients are told to ask {target}"


def groups_are_one_deployment(rendered: Rendered) -> Iterator[str]:
    """Each further group is told its number and the directory, owns its own pods alone, and is behind the one service."""
    sets = rendered.kind("StatefulSet")
    numbers = [group_of(o) for o in sets]
    if sorted(map(str, numbers)) != sorted(map(str, range(rendered.values["groups"]))):
        yield f"there are groups {numbers}, not {rendered.values['groups']}"
    service = rendered.one("Service", str(sets[0]["metadata"]["name"]))["spec"]["selector"]
    addresses = {number: pods_of(rendered, o) for number, o in zip(numbers, sets, strict=True)}
    for number, o in zip(numbers, sets, strict=True):
        container = o["spec"]["template"]["spec"]["containers"][0]
        told = argument(container, "--group"), argument(container, "--directory")
        wanted = (str(number), ",".join(addresses[0])) if number else ("", "")
        if told != wanted:
            yield f"group {number} is told {told}, not {wanted}"
        labels = o["spec"]["template"]["metadata"]["labels"]
        if not matches(service, labels):
            yield f"group {number} is not behind the service"
        owners = [each["metadata"]["name"] for each in sets
                  if matches(each["spec"]["selector"]["matchLabels"], labels) and group_of(each)]  # fmt: skip
        if owners != [o["metadata"]["name"]] * bool(number):
            yield f"pods of group {number} are those of {owners}, too"
    targets = [o["data"]["LOWMARK_TARGET"].split(",") for o in rendered.kind("ConfigMap")
               if o["metadata"]["name"].endswith("-client")]  # fmt: skip
    for target in targets:
        if sorted(target) != sorted(each for some in addresses.values() for each in some):
            yield f"clients are told to ask {target}, and not every process of every group"


def pods_of(rendered: Rendered, found: Object) -> list[str]:
    """host:port of the pods of a set."""
    values, spec = rendered.values, found["spec"]
    tail = f"{spec['serviceName']}.{rendered.namespace}.svc.{values['clusterDomain']}:{values['tracker']['port']}"
    return [f"{found['metadata']['name']}-{n}.{tail}" for n in range(spec["replicas"])]


def probes_are_native(rendered: Rendered) -> Iterator[str]:
    """gRPC probes on the port for probes, each under its name; a slow start is no death."""
    for o, container in servers(rendered):
        where = o["metadata"]["name"]
        health = setting(container, "health_listen").rpartition(":")[2]
        for probe, service in (
            ("startupProbe", "live"), ("livenessProbe", "live"), ("readinessProbe", "ready"),
        ):  # fmt: skip
            grpc = container.get(probe, {}).get("grpc", {})
            if str(grpc.get("port")) != health or grpc.get("service") != service:
                yield f"{where}: {probe} asks {grpc}, not port {health} for {service!r}"
        startup = container.get("startupProbe", {})
        allowed_s = startup.get("periodSeconds", 0) * startup.get("failureThreshold", 0)
        if allowed_s < rendered.values["tracker"]["startupTimeoutSeconds"] - 1:
            yield f"{where} is killed when it has not answered after {allowed_s} s"
    for o in rendered.kind("DaemonSet"):
        for other in o["spec"]["template"]["spec"]["containers"]:
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                if other.get(probe, {}).get("tcpSocket", {}).get("port") != "workers":
                    yield f"DaemonSet/{o['metadata']['name']} has no {probe}"


def pods_end_in_order(rendered: Rendered) -> Iterator[str]:
    """Out of the service, then told to stop, then given the time it needs; one pod after the other."""
    for o, container in servers(rendered):
        grace_s = o["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        sleep = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {})
        if grace_s < (sleep_s := sleep.get("seconds", 0)) + STOP_S and sleep_s:
            yield f"{o['metadata']['name']}: {grace_s} s are too few after sleeping {sleep_s} s"
    found, _ = tracker(rendered)
    if found["spec"].get("updateStrategy", {}).get("type") != "RollingUpdate":
        yield "an upgrade does not go pod by pod"
    for where, _, spec in rendered.pod_specs():
        local = [c for c in containers(spec) if c.get("args", [""])[0] == "local-tracker"]
        if local and spec.get("terminationGracePeriodSeconds", 30) < STOP_S + 5:
            yield f"{where} is killed before what it took is flushed"
        for sidecar in spec.get("initContainers", []):
            if sidecar.get("restartPolicy") != "Always":
                yield f"{where}: {sidecar['name']} would end before the executor begins"
            if "startupProbe" not in sidecar:
                yield f"{where}: the executor does not wait for {sidecar['name']}"


def disruptions_are_bounded(rendered: Rendered) -> Iterator[str]:
    """One budget for the trackers of all groups, and one for relays."""
    wanted = rendered.values["podDisruptionBudget"]["enabled"]
    budgets = rendered.kind("PodDisruptionBudget")
    if len(budgets) != wanted * (1 + len(rendered.kind("Deployment"))):
        yield f"{len(budgets)} disruption budgets"
    for o, _ in servers(rendered):
        labels = o["spec"]["template"]["metadata"]["labels"]
        own = [b for b in budgets if matches(b["spec"]["selector"]["matchLabels"], labels)]
        if len(own) != int(wanted):
            yield f"{o['metadata']['name']} has {len(own)} disruption budgets"


def pods_are_spread(rendered: Rendered) -> Iterator[str]:
    for o, _ in servers(rendered):
        template, where = o["spec"]["template"], o["metadata"]["name"]
        constraints = template["spec"].get("topologySpreadConstraints", [])
        named = rendered.values["tracker"]["topologySpread"] if o["kind"] == "StatefulSet" else [1]
        if len(constraints) != len(named):
            yield f"the pods of {where} are not spread"
        for constraint in constraints:
            selector = constraint["labelSelector"]["matchLabels"]
            if not matches(selector, template["metadata"]["labels"]):
                yield f"{where}: spread over {constraint['topologyKey']} counts other pods"


def durable_where_it_says_so(rendered: Rendered) -> Iterator[str]:
    """SQLite lies on a volume claim that outlives the pod."""
    found, container = tracker(rendered)
    store = next(v for v in container["env"] if v["name"] == "LOWMARK_STORE")
    claims = found["spec"].get("volumeClaimTemplates", [])
    path = str(store.get("value", "")).removeprefix("sqlite:")
    mounted = {m["mountPath"] for m in container["volumeMounts"]
               if m["name"] in {c["metadata"]["name"] for c in claims}}  # fmt: skip
    if rendered.values["store"]["kind"] == "sqlite":
        if path not in mounted:
            yield f"the store {path} is not on a volume that outlives the pod"
        kept = found["spec"].get("persistentVolumeClaimRetentionPolicy", {})
        if kept.get("whenScaled") != "Retain":
            yield "a volume goes when the set is made smaller"
    elif claims:
        yield "there is a volume claim, and nothing to keep on it"


def relays_pass_on(rendered: Rendered) -> Iterator[str]:
    """They ask all processes of the tracker, are behind a service of their own, and have a certificate for its name."""
    found, wanted = rendered.kind("Deployment"), rendered.values["relays"]["replicas"]
    if sum(o["spec"]["replicas"] for o in found) != wanted:
        yield f"there are not {wanted} relays"
    for o in found:
        container = o["spec"]["template"]["spec"]["containers"][0]
        if setting(container, "relay") != "$(LOWMARK_TARGET)":
            yield f"they pass on what {setting(container, 'relay')!r} announces"
        labels = o["spec"]["template"]["metadata"]["labels"]
        services = [s["metadata"]["name"] for s in rendered.kind("Service")
                    if matches(s["spec"]["selector"], labels)]  # fmt: skip
        if services != [o["metadata"]["name"]]:
            yield f"they are behind {services}"
        jobs = [j for j in rendered.kind("Job") if component(j) == "credentials"]
        for what, hosts, for_pods in issued(rendered, jobs):
            named = o["metadata"]["name"] in hosts
            if named != ("relay" in what) or (named and for_pods):
                yield f"{what} is for {hosts}"


# --- services, policies, hooks --------------------------------------------------------------------


def services_lead_somewhere(rendered: Rendered) -> Iterator[str]:
    """Selectors find pods, and ports by name are ports of theirs."""
    for o in rendered.kind("Service"):
        pods = pods_by(rendered, o["spec"]["selector"])
        if not pods:
            yield f"Service/{o['metadata']['name']} selects no pod"
        for port in o["spec"]["ports"]:
            for where, _, spec in pods:
                if port["targetPort"] not in port_names(spec):
                    yield f"Service/{o['metadata']['name']}: {where} has no port {port['targetPort']}"
    for o in rendered.kind("ServiceMonitor"):
        for endpoint in o["spec"]["endpoints"]:
            for wanted in ("tracker", "relay", "local-tracker"):
                found = [
                    service["metadata"]["name"]
                    for service in rendered.kind("Service")
                    if selects(o["spec"]["selector"], service["metadata"]["labels"])
                    and service["spec"]["selector"]["app.kubernetes.io/component"] == wanted
                    and endpoint["port"] in [port["name"] for port in service["spec"]["ports"]]
                ]
                there = wanted in {metadata["labels"]["app.kubernetes.io/component"]
                                   for _, metadata, _ in rendered.pod_specs()
                                   if "app.kubernetes.io/component" in metadata["labels"]}  # fmt: skip
                if len(found) != int(there):
                    yield f"port {endpoint['port']} of each {wanted} is found {len(found)} times"


def selects(selector: Object, labels: Object) -> bool:
    """By labels, and by the expressions that the chart has."""
    for expression in selector.get("matchExpressions", []):
        if labels.get(expression["key"]) not in expression["values"]:
            return False
    return matches(selector["matchLabels"], labels)


def port_names(spec: Object) -> set[str]:
    return {port["name"] for c in containers(spec) for port in c.get("ports", [])}


def ports_are_listened_at(rendered: Rendered) -> Iterator[str]:
    """Each port of a container that serves is one that its arguments listen at."""
    for o, container in servers(rendered):
        listened = {
            "grpc": argument(container, "--listen"),
            "health": setting(container, "health_listen"),
            "metrics": argument(container, "--metrics-listen"),
            "dashboard": argument(container, "--dashboard-listen"),
        }
        declared = {port["name"]: str(port["containerPort"]) for port in container["ports"]}
        told = {name: where.rpartition(":")[2] for name, where in listened.items() if where}
        if declared != told:
            yield f"{o['metadata']['name']}: ports are {declared}, and it listens at {told}"


def policies_allow_what_is_needed(rendered: Rendered) -> Iterator[str]:
    """Policies are about the pods of the release, name their ports, and let them reach what they must."""
    policies = rendered.kind("NetworkPolicy")
    wanted = rendered.values["networkPolicy"]["enabled"]
    if not wanted:
        yield from (f"there is a policy {p['metadata']['name']}" for p in policies)
        return
    guarded = set()
    for policy in policies:
        spec, name = policy["spec"], policy["metadata"]["name"]
        pods = pods_by(rendered, spec["podSelector"]["matchLabels"])
        guarded |= {where for where, _, _ in pods}
        if spec["policyTypes"] != ["Ingress", "Egress"]:
            yield f"{name} leaves a direction open"
        for rule in spec["ingress"]:
            names = {port["port"] for port in rule["ports"]}
            if not rule.get("from") and names != {"health"}:
                yield f"{name} lets everybody reach {sorted(names)}"
            for where, _, pod in pods:
                if not names <= port_names(pod):
                    yield f"{name}: {where} has no port {sorted(names - port_names(pod))}"
        reached = {port["port"] for rule in spec["egress"] for port in rule["ports"]}
        if not {"grpc", 53} <= reached:
            yield f"{name}: pods reach neither each other nor names"
        store = set(rendered.values["networkPolicy"]["storePorts"])
        of_trackers = any(where.startswith("StatefulSet") for where, _, _ in pods)
        if of_trackers and rendered.values["store"]["kind"] == "redis" and not store <= reached:
            yield f"{name}: the store cannot be reached"
    for where, metadata, _ in rendered.pod_specs():
        component = metadata["labels"].get("app.kubernetes.io/component")
        if component in ("tracker", "relay", "local-tracker") and where not in guarded:
            yield f"{where} is under no policy"


def pipelines_are_right(rendered: Rendered) -> Iterator[str]:
    """Those that the values hold are ones, by the reader of the command line."""
    given = rendered.values["pipelines"]
    maps = [o for o in rendered.kind("ConfigMap") if o["metadata"]["name"].endswith("-pipelines")]
    written = {key: text for o in maps for key, text in o["data"].items()}
    if set(written) != {f"{name}.yaml" for name in given}:
        yield f"pipelines {sorted(given)}, and files {sorted(written)}"
    for key, text in written.items():
        try:
            if load_pipeline(text, key).name != key.removesuffix(".yaml"):
                yield f"{key} holds another pipeline"
        except ValueError as error:
            yield str(error)
    jobs = [o for o in rendered.kind("Job") if o["metadata"]["name"].endswith("-pipelines")]
    if len(jobs) != bool(given or rendered.values["pipelineConfigMaps"]):
        yield f"{len(jobs)} jobs apply pipelines"
    for job in jobs:
        hooks = job["metadata"]["annotations"].get("helm.sh/hook", "")
        if hooks.split(",") != ["post-install", "post-upgrade"]:
            yield f"pipelines are applied at {hooks}"


def names_fit(rendered: Rendered) -> Iterator[str]:
    """Names and labels are not too long, are not taken twice; selectors do not change with a version."""
    seen = set()
    for o in rendered.objects:
        name, kind = o["metadata"]["name"], o["kind"]
        if (kind, name) in seen:
            yield f"{kind}/{name} is there twice"
        seen.add((kind, name))
        # A pod of a set has a number behind, and a revision as a label.
        most = 52 if kind in ("StatefulSet", "DaemonSet", "Job") else 63
        if len(name) > most or not re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name):
            yield f"{kind}/{name} is no name, or too long"
        for text in labels_of(o):
            if len(text) > 63 or not re.fullmatch(
                r"([A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?)?", text
            ):
                yield f"{kind}/{name}: {text} is no label"
        selector = o.get("spec", {}).get("selector", {})
        for key in selector.get("matchLabels", selector):
            if key in ("app.kubernetes.io/version", "helm.sh/chart"):
                yield f"{kind}/{name} selects by {key}, which changes"


def labels_of(o: Object) -> list[str]:
    return [str(value) for value in o["metadata"].get("labels", {}).values()]


def notes_warn(rendered: Rendered) -> Iterator[str]:
    """What is off is said loudly."""
    insecure = rendered.values["security"]["insecure"]
    for what, off in (
        ("without TLS", insecure),
        ("without tokens", insecure or not rendered.values["auth"]["enabled"]),
        ("no alert rules", not rendered.values["metrics"]["rules"]["enabled"]),
    ):
        if (what in rendered.notes) != off:
            yield f"the notes {'do not say' if off else 'say'} {what!r}"


# --- who comes in ---------------------------------------------------------------------------------


def tracker_certificate(rendered: Rendered) -> str:
    """The secret with the certificate of the tracker's pods; empty where they have none."""
    volumes = rendered.one("StatefulSet")["spec"]["template"]["spec"]["volumes"]
    return next((str(v["secret"]["secretName"]) for v in volumes if v["name"] == "tls"), "")


def doors_are_shut(rendered: Rendered) -> Iterator[str]:
    """TLS, and tokens or certificates of clients, unless the one value says otherwise; clients have what they
    need."""
    insecure = rendered.values["security"]["insecure"]
    for o, container in servers(rendered):
        cert, key = argument(container, "--tls-cert"), argument(container, "--tls-key")
        if bool(cert and key) == insecure:
            yield f"{o['metadata']['name']}: security.insecure is {insecure}, and --tls-cert {cert!r}"
        if bool(argument(container, "--tokens") or argument(container, "--tls-ca")) == insecure:
            yield (
                "whoever connects may do everything"
                if not insecure
                else "tokens travel in the clear"
            )
    _, container = tracker(rendered)
    for where, _, other in own_containers(rendered):
        names = {variable["name"] for variable in other.get("env", [])}
        for option, needed in (
            ("--tls-cert", {"LOWMARK_TLS_CA"}), ("--tls-ca", {"LOWMARK_TLS_CERT", "LOWMARK_TLS_KEY"}),
            ("--tokens", {"LOWMARK_TOKEN_FILE"}),
        ):  # fmt: skip
            if "LOWMARK_TARGET" in names and argument(container, option) and not needed <= names:
                yield f"{where} has no {sorted(needed - names)}"


def credentials_are_made(rendered: Rendered) -> Iterator[str]:
    """By an account that may look at and write the release's own secrets, and do nothing else; certificates are
    for every pod that may come, and those of clients for none."""
    made = [o["metadata"]["name"] for o in rendered.kind("Secret")]
    jobs = [j for j in rendered.kind("Job") if component(j) == "credentials"]
    roles, bindings = rendered.kind("Role"), rendered.kind("RoleBinding")
    if not len(jobs) == len(roles) == len(bindings) == bool(made):
        yield f"{len(made)} secrets are filled by {len(jobs)} jobs with {len(roles)} roles"
        return
    wanted = {
        "apiGroups": [""],
        "resources": ["secrets"],
        "resourceNames": made,
        "verbs": ["get", "update"],
    }
    for role, binding, job in zip(roles, bindings, jobs, strict=True):
        if role["rules"] != [wanted]:
            yield f"{role['metadata']['name']} has other rights: {role['rules']}"
        account = job["spec"]["template"]["spec"]["serviceAccountName"]
        accounts = [subject["name"] for subject in binding["subjects"]]
        others = {
            s["serviceAccountName"]
            for w, _, s in rendered.pod_specs()
            if "serviceAccountName" in s and account not in w
        }
        if accounts != [account] or account in others:
            yield f"{account} is not the only one with these rights: {accounts}, {sorted(others)}"
    _, container = tracker(rendered)
    name = argument(container, "--address").partition(":")[0].replace("$(POD_NAME)", "any-pod")
    for what, hosts, for_pods in issued(rendered, jobs):
        covered = any(
            name == h or (h[:2] == "*." and name.partition(".")[2] == h[2:]) for h in hosts
        )
        if covered != for_pods:
            yield f"{what} is {'not ' * for_pods}for the pods' names: {hosts}"


def issued(rendered: Rendered, jobs: list[Object]) -> Iterator[tuple[str, list[str], bool]]:
    """Each certificate that is made: its name, its hosts, and whether it is that of the pods."""
    for job in jobs:
        container = job["spec"]["template"]["spec"]["containers"][0]
        if hosts := argument(container, "--host"):
            yield "the certificate", hosts.split(","), True
        if hosts := argument(container, "--host=relay"):
            yield "that of relays", hosts.split(","), False
    for o in rendered.kind("Certificate"):
        if not o["spec"].get("isCA"):
            secret = o["spec"]["secretName"]
            yield secret, o["spec"]["dnsNames"], secret == tracker_certificate(rendered)


def component(o: Object) -> str:
    return str(o["metadata"].get("labels", {}).get("app.kubernetes.io/component", ""))


RULES: tuple[Rule, ...] = (
    pods_are_restricted, resources_are_bounded, arguments_are_known, variables_are_given,
    secrets_stay_secret, volumes_fit, files_are_mounted, references_exist, shards_find_each_other,
    probes_are_native, pods_end_in_order, disruptions_are_bounded, pods_are_spread,
    durable_where_it_says_so, relays_pass_on, services_lead_somewhere, ports_are_listened_at,
    policies_allow_what_is_needed, pipelines_are_right, names_fit, notes_warn, doors_are_shut,
    credentials_are_made,
)  # fmt: skip


def rule_violations(rendered: Rendered) -> list[str]:
    """What breaks the rules: each group by itself, or all together."""
    broken = [
        f"{groups_are_one_deployment.__name__}: {said}"
        for said in groups_are_one_deployment(rendered)
    ]
    for part in rendered.of_groups():
        broken += [f"{rule.__name__}: {said}" for rule in RULES for said in rule(part)]
    return [*dict.fromkeys(broken)]
