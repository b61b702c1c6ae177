"""The chart with each of its example values: rendered, linted, validated, and held against the rules."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("helm_python", reason="Helm's engine has no wheel for this machine")

from scripts import chart_readme
from tests.chart.rendering import (
    CHART,
    CI_VALUES,
    Rendered,
    lint,
    render,
    render_upgrade,
    values_of,
)
from tests.chart.rules import (
    RULES,
    component,
    credentials_are_made,
    doors_are_shut,
    groups_are_one_deployment,
    issued,
    names_fit,
    relays_pass_on,
    rule_violations,
    shards_find_each_other,
)
from tests.chart.schemas import VERSIONS, schema_violations
from tracker import __version__
from tracker.service.settings import ServeSettings

EVERYTHING = CHART / "ci" / "everything-values.yaml"


@pytest.fixture(params=CI_VALUES, ids=lambda path: path.name.removesuffix("-values.yaml"))
def path(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


def test_each_example_is_rendered_linted_and_valid(path: Path) -> None:
    values = values_of(path)
    assert lint(values) == []
    rendered = render(values)
    assert len(rendered.objects) >= 7
    assert rule_violations(rendered) == []
    assert schema_violations(rendered, VERSIONS[0]) == []


def test_a_newer_cluster_takes_it_too() -> None:
    rendered = render(values_of(EVERYTHING))
    assert schema_violations(rendered, VERSIONS[-1]) == []


def test_a_field_that_no_schema_has_is_found() -> None:
    """What the validation is worth."""
    rendered = render({})
    rendered.one("StatefulSet")["spec"]["template"]["spec"]["containers"][0]["argz"] = ["serve"]
    rendered.one("PodDisruptionBudget")["spec"]["maxUnavailable"] = 1.5
    said = schema_violations(rendered, VERSIONS[0])
    assert len(said) == 2 and any("argz" in text for text in said)


def test_names_fit_whatever_the_release_is_called() -> None:
    for release in ("r", "lowmark", "a-release-with-a-very-long-name-as-long-as-helm-allow"):
        rendered = render(values_of(EVERYTHING), release=release)
        assert list(names_fit(rendered)) == list(shards_find_each_other(rendered)) == [], release


GROUPS = CHART / "ci" / "groups-values.yaml"


def test_each_group_has_values_of_its_own() -> None:
    rendered = render(values_of(GROUPS))
    first, second, third = (part.one("StatefulSet")["spec"] for part in rendered.of_groups())
    assert [each["replicas"] for each in (first, second, third)] == [1, 2, 1]
    limits = [
        each["template"]["spec"]["containers"][0]["resources"]["limits"] for each in (first, second)
    ]
    assert [each["memory"] for each in limits] == ["2Gi", "4Gi"]
    (claim,) = third["volumeClaimTemplates"]
    assert claim["spec"]["storageClassName"] == "fast"


def test_groups_are_drained_before_they_go_and_opened_when_they_come() -> None:
    def jobs(groups: int, before: Rendered) -> dict[str, tuple[str, str, list[str]]]:
        """By name of a job when it runs, where in the order, and its words; each may ask every process that there is."""
        found = {}
        rendered = render_upgrade({"groups": groups}, before)
        assert rule_violations(rendered) == []
        for job in rendered.kind("Job"):
            (container,) = job["spec"]["template"]["spec"]["containers"]
            if container["name"] == "groups":
                notes = job["metadata"]["annotations"]
                target = next(e["value"] for e in container["env"] if e["name"] == "LOWMARK_TARGET")
                assert target.count(",") == 3
                when = notes["helm.sh/hook"], notes["helm.sh/hook-weight"]
                found[job["metadata"]["name"]] = (*when, container["args"])
        return found

    assert jobs(2, render({"groups": 4})) == {
        "demo-lowmark-drain-2": ("pre-upgrade", "-2", ["groups", "drain", "2"]),
        "demo-lowmark-drain-3": ("pre-upgrade", "-3", ["groups", "drain", "3"]),
    }
    assert jobs(4, render({"groups": 3})) == {
        "demo-lowmark-open-3": ("post-upgrade", "-3", ["groups", "cordon", "3", "--undo"]),
    }
    assert jobs(4, render({"groups": 4})) == {}


def _spoilt(rendered: Rendered, group: int) -> Any:
    return [*rendered.of_groups()][group].one("StatefulSet")["spec"]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda r: r.objects.remove([*r.of_groups()][2].one("StatefulSet")),
        lambda r: _container_of(_spoilt(r, 1))["args"].remove("--group=1"),
        lambda r: _spoilt(r, 2)["selector"]["matchLabels"].update({"lowmark.dev/group": "1"}),
        lambda r: r.one("Service", "demo-lowmark")["spec"]["selector"].update(x="y"),
        lambda r: r.one("ConfigMap", "demo-lowmark-client")["data"].update(LOWMARK_TARGET="demo:1"),
    ],
)  # fmt: skip
def test_groups_that_are_not_one_deployment_are_found(spoil: Any) -> None:
    rendered = copy.deepcopy(render(values_of(GROUPS)))
    assert list(groups_are_one_deployment(rendered)) == []
    spoil(rendered)
    assert list(groups_are_one_deployment(rendered)) != []


def _container_of(spec: Any) -> Any:
    return spec["template"]["spec"]["containers"][0]


def test_what_is_off_is_not_there() -> None:
    kinds = {o["kind"] for o in render({}).objects}
    assert kinds == {
        "ConfigMap", "Job", "NetworkPolicy", "Pod", "PodDisruptionBudget", "Role", "RoleBinding",
        "Secret", "Service", "ServiceAccount", "StatefulSet",
    }  # fmt: skip
    (job,) = render({}).kind("Job")
    assert component(job) == "credentials"
    off: dict[str, Any] = {
        name: {"enabled": False} for name in ("podDisruptionBudget", "networkPolicy", "hooks")
    }
    off["security"] = {"insecure": True}
    rendered = render({**off, "serviceAccount": {"create": False}, "shards": 2})
    assert rule_violations(rendered) == []
    assert len(rendered.objects) == 5


def test_nobody_reads_the_metrics_where_nobody_is_named() -> None:
    """A rule of a policy that is from nobody is from everybody."""
    rendered = render({
        "metrics": {"enabled": True},
        "networkPolicy": {"monitoring": []},
        "localTrackers": {"enabled": True, "pipeline": "flights"},
    })  # fmt: skip
    policies = rendered.kind("NetworkPolicy")
    assert len(policies) == 2
    for rule in (rule for policy in policies for rule in policy["spec"]["ingress"]):
        assert rule.get("from") != [] and {"port": "metrics"} not in rule["ports"], rule


def test_an_account_that_may_do_more_is_found() -> None:
    """By default the chart makes credentials; `everything` names its own."""
    breaks: tuple[Any, ...] = (
        lambda r: r.one("Role")["rules"][0]["verbs"].append("list"),
        lambda r: r.one("Role")["rules"][0].pop("resourceNames"),
        lambda r: _pod(r).update(serviceAccountName="demo-lowmark-credentials"),
        lambda r: r.one("Job")["spec"]["template"]["spec"]["containers"][0].update(
            args=["credentials", "create", "--host=demo-lowmark"]
        ),
    )
    for broken in breaks:
        rendered = render({})
        assert list(credentials_are_made(rendered)) == []
        broken(rendered)
        assert list(credentials_are_made(rendered)) != []


def test_a_client_that_could_act_as_a_shard_is_found() -> None:
    rendered = render(values_of(CHART / "ci" / "cert-manager-values.yaml"))
    client = rendered.one("Certificate", "demo-lowmark-client-certificate")["spec"]
    client["dnsNames"].append("*.demo-lowmark-peers.prod.svc.cluster.local")
    assert list(credentials_are_made(rendered)) != []


def test_a_relay_whose_certificate_is_for_a_shard_or_not_for_it_is_found() -> None:
    """Made by the job, and asked of cert-manager."""
    for more in ({}, {"tls": {"certManager": {"enabled": True}}}):
        rendered = render({"relays": {"replicas": 2}, **more})
        assert rule_violations(rendered) == []
        (hosts,) = (
            hosts for what, hosts, _ in issued(rendered, rendered.kind("Job")) if "relay" in what
        )
        assert "demo-lowmark-relays.prod.svc.cluster.local" in hosts
    rendered.one("Certificate", "demo-lowmark-relay-certificate")["spec"]["dnsNames"] = [
        "*.demo-lowmark-peers.prod.svc.cluster.local"
    ]
    assert list(credentials_are_made(rendered)) != [] != list(relays_pass_on(rendered))


def test_insecure_is_all_or_nothing() -> None:
    rendered = render({"security": {"insecure": True}, "auth": {"enabled": True}})
    assert rendered.kind("Secret") == rendered.kind("Role") == []
    assert list(doors_are_shut(rendered)) == []
    assert not [word for word in _container(rendered)["args"] if "tls" in word or "token" in word]


def test_an_alert_can_be_changed_and_left_out() -> None:
    rules = {
        "enabled": True,
        "disabled": ["LowmarkLateItems"],
        "overrides": {"LowmarkMinTimeStalled": {"for": "10m", "labels": {"severity": "page"}}},
    }
    rendered = render({"metrics": {"enabled": True, "rules": rules}})
    written = rendered.one("PrometheusRule")["spec"]["groups"][0]["rules"]
    by_name = {rule["alert"]: rule for rule in written}
    assert "LowmarkLateItems" not in by_name
    assert by_name["LowmarkMinTimeStalled"]["for"] == "10m"
    assert by_name["LowmarkMinTimeStalled"]["labels"] == {"severity": "page"}
    untouched = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())["groups"][0]["rules"]
    assert [r for r in untouched if r["alert"] == "LowmarkFrontSilent"] == [
        by_name["LowmarkFrontSilent"]
    ]


# --- settings and their description ---------------------------------------------------------------


def _keys(schema: Any, values: Any, path: str = "") -> Iterator[str]:
    """What is in the values and not described in the schema, or the other way round."""
    properties = schema.get("properties", {})
    for name, inner in properties.items():
        if not inner.get("description"):
            yield f"{path}{name} is not described"
        if name not in values and "default" not in inner and name != "global":
            yield f"{path}{name} has no default"
    if not properties:
        return
    if schema.get("additionalProperties") is not False:
        yield f"{path or 'the whole'} lets unknown settings pass"
    for name, value in values.items():
        if name not in properties:
            yield f"{path}{name} is not in the schema"
        elif isinstance(value, dict) and "properties" in properties[name]:
            yield from _keys(properties[name], value, f"{path}{name}.")


def test_every_setting_has_a_default_and_is_described() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert list(_keys(schema, values)) == []


def test_everything_sets_every_switch() -> None:
    """The example that is to show all of it does."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    given = values_of(EVERYTHING)
    for name, section in defaults.items():
        if isinstance(section, dict) and section.get("enabled") is False:
            assert given[name]["enabled"] is True, name
    assert given["metrics"]["rules"]["enabled"] and given["metrics"]["serviceMonitor"]["enabled"]
    assert given["relays"]["replicas"]


def test_the_readme_lists_the_settings_as_they_are() -> None:
    assert chart_readme.main(["--check"]) == 0


def test_the_only_default_is_that_of_the_command() -> None:
    """Who moves from the command line to the chart finds nothing changed."""
    (given,) = render({}).values["tracker"]["settings"].items()
    assert given == ("block_slots", ServeSettings.model_fields["block_slots"].default)


def test_the_chart_has_the_version_of_the_product() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__


# --- what the rules are worth ---------------------------------------------------------------------


def _container(rendered: Rendered) -> Any:
    return rendered.one("StatefulSet")["spec"]["template"]["spec"]["containers"][0]


def _pod(rendered: Rendered) -> Any:
    return rendered.one("StatefulSet")["spec"]["template"]["spec"]


def _relay(rendered: Rendered) -> Any:
    return _container_of(rendered.one("Deployment")["spec"])


def _without(words: list[str], begin: str) -> list[str]:
    return [word for word in words if not word.startswith(begin)]


BREAKS: dict[str, Any] = {
    "pods_are_restricted": lambda r: _container(r)["securityContext"].pop("capabilities"),
    "pods_are_restricted: root": lambda r: _pod(r)["securityContext"].update(runAsNonRoot=False),
    "resources_are_bounded": lambda r: _container(r)["resources"].pop("limits"),
    "arguments_are_known": lambda r: _container(r)["args"].append("--set=leese_ms=3"),
    "variables_are_given": lambda r: _container(r)["env"].pop(0),
    "secrets_stay_secret": lambda r: _container(r)["args"].append("--store=redis://u:p@h"),
    "secrets_stay_secret: environment": lambda r: _container(r)["env"].append(
        {"name": "TOKEN", "value": "abc"}
    ),
    "secrets_stay_secret: the trackers' certificate": lambda r: r.one("Job")["spec"]["template"][
        "spec"
    ]["volumes"][1]["secret"].update(secretName="tracker-certificate"),
    "volumes_fit": lambda r: _pod(r)["volumes"].pop(),
    "files_are_mounted": lambda r: _container(r)["args"].append("--tokens=/etc/lowmark/other/t"),
    "references_exist": lambda r: r.values.update(pipelineConfigMaps=[]),
    "shards_find_each_other": lambda r: r.one("StatefulSet")["spec"].update(replicas=9),
    "probes_are_native": lambda r: _container(r)["readinessProbe"]["grpc"].pop("service"),
    "probes_are_native: slow": lambda r: _container(r)["startupProbe"].update(failureThreshold=3),
    "pods_end_in_order": lambda r: _pod(r).update(terminationGracePeriodSeconds=8),
    "disruptions_are_bounded": lambda r: r.one("PodDisruptionBudget", "demo-tracker")["spec"][
        "selector"
    ]["matchLabels"].update(x="y"),
    "disruptions_are_bounded: relays": lambda r: r.objects.remove(
        r.one("PodDisruptionBudget", "demo-tracker-relays")
    ),
    "pods_are_spread": lambda r: _pod(r).pop("topologySpreadConstraints"),
    "services_lead_somewhere": lambda r: _container(r)["ports"].pop(0),
    "ports_are_listened_at": lambda r: _container(r).update(
        args=_without(_container(r)["args"], "--metrics-listen")
    ),
    "policies_allow_what_is_needed": lambda r: r.one("NetworkPolicy", "demo-tracker")["spec"][
        "egress"
    ].pop(),
    "policies_allow_what_is_needed: relays": lambda r: r.objects.remove(
        r.one("NetworkPolicy", "demo-tracker-relays")
    ),
    "relays_pass_on": lambda r: _relay(r)["args"].remove("--set=relay=$(LOWMARK_TARGET)"),
    "relays_pass_on: another service": lambda r: r.one("Service", "demo-tracker-relays")["spec"][
        "selector"
    ].update({"app.kubernetes.io/component": "tracker"}),
    "probes_are_native: relays": lambda r: _relay(r).pop("readinessProbe"),
    "secrets_stay_secret: relays": lambda r: r.one("Deployment")["spec"]["template"]["spec"][
        "volumes"
    ][1]["secret"].update(secretName="tracker-certificate"),
    "pipelines_are_right": lambda r: r.one("ConfigMap", "demo-tracker-pipelines")["data"].update(
        {"orders.yaml": "name: orders\nsegmints: [a]\n"}
    ),
    "names_fit": lambda r: r.one("StatefulSet")["metadata"].update(name="x" * 60),
    "notes_warn": lambda r: r.values["metrics"]["rules"].update(enabled=False),
    "doors_are_shut": lambda r: _container(r).update(
        args=_without(_container(r)["args"], "--tls-cert")
    ),
    "doors_are_shut: a client": lambda r: r.one("Pod")["spec"]["containers"][0]["env"].pop(),
    "credentials_are_made": lambda r: r.objects.append({"kind": "Role", "metadata": {"name": "all"}}),
    "durable_where_it_says_so": lambda r: r.values["store"].update(kind="sqlite"),
}  # fmt: skip


@pytest.fixture(scope="module")
def everything() -> Rendered:
    return render(values_of(EVERYTHING))


@pytest.mark.parametrize("broken", BREAKS)
def test_each_rule_finds_what_breaks_it(broken: str, everything: Rendered) -> None:
    rendered = copy.deepcopy(everything)
    (rule,) = (r for r in RULES if r.__name__ == broken.partition(":")[0])
    BREAKS[broken](rendered)
    assert list(rule(rendered)) != []


def test_every_rule_is_shown_to_find_something() -> None:
    assert {rule.__name__ for rule in RULES} == {name.partition(":")[0] for name in BREAKS}
