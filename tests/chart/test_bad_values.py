"""Values that cannot be are refused when they are rendered, with what to do instead."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("helm_python", reason="Helm's engine has no wheel for this machine")

from tests.chart.rendering import RefusedValues, render, render_into_cluster, render_upgrade
from tests.chart.rules import argument, setting

REDIS = {"kind": "redis", "redis": {"url": "redis://r:6379"}}
PIPELINES = {"p": {"segments": ["a"], "fronts": ["f"]}}
TLS = {"enabled": True, "existingSecret": "certificate", "clientSecret": "other"}
AUTH = {"enabled": True, "existingSecret": "tokens"}

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "two addresses": (
        {"store": {"kind": "redis", "redis": {"url": "redis://r", "existingSecret": "s"}}},
        "both set: keep one",
    ),
    "no address": ({"store": {"kind": "redis"}}, "set store.redis.existingSecret to a secret"),
    "a password in the values": (
        {"store": {"kind": "redis", "redis": {"url": "redis://u:secret@r:6379"}}},
        "put the address into a secret",
    ),
    "an address of something else": (
        {"store": {"kind": "redis", "redis": {"url": "http://localhost:6379"}}}, "store.redis.url",
    ),
    "a store that no policy lets pods reach": (
        {"store": {"kind": "redis", "redis": {"url": "redis://r:6380/0"}}},
        "leads to port 6380, and networkPolicy.storePorts has 6379: no pod could reach its store. Add it there",
    ),
    "sentinels that no policy lets pods reach": (
        {"store": {"kind": "redis", "redis": {"url": "redis+sentinel://s-0,s-1/primary"}}},
        "leads to port 26379, and networkPolicy.storePorts has 6379",
    ),
    "pipelines that nobody registers": (
        {"hooks": {"enabled": False}, "pipelines": PIPELINES}, "Set hooks.enabled to true, or leave them out",
    ),
    "pipelines of others that nobody registers": (
        {"hooks": {"enabled": False}, "pipelineConfigMaps": ["mine"]}, "nobody would register them",
    ),
    "a standby that sees no files": ({"standbys": 1}, "set standbys to 0, or store.kind to redis"),
    "no TLS, unnamed": ({"tls": {"enabled": False}}, "or set security.insecure to true"),
    "everybody may do everything": (
        {"tls": {"requireClientCertificates": False}, "auth": {"enabled": False}},
        "or security.insecure, which turns TLS and tokens off",
    ),
    "insecure with tokens": (
        {"security": {"insecure": True}, "auth": AUTH}, "security.insecure turns TLS and tokens off",
    ),
    "two who make certificates": (
        {"tls": {**TLS, "certManager": {"enabled": True}}}, "both set: keep one",
    ),
    "a client whom no authority knows": (
        {"tls": {"clientSecret": "mine"}}, "an authority that has not signed yours",
    ),
    "a token that no file knows": (
        {"auth": {"peerSecret": "mine"}}, "Set auth.existingSecret too",
    ),
    "days that are none": ({"tls": {"days": 3}}, "tls.days"),
    "a client without a token": ({"tls": TLS, "auth": AUTH}, "needs auth.clientSecret"),
    "a client without a certificate": (
        {"tls": {"enabled": True, "existingSecret": "certificate"}}, "needs tls.clientSecret",
    ),
    "a client with the certificate of a shard": (
        {"tls": {**TLS, "clientSecret": "certificate"}}, "may act as a shard",
    ),
    "a relay without a certificate": (
        {"tls": TLS, "auth": {"enabled": False}, "relays": {"replicas": 1}},
        "needs relays.tlsSecret: a secret with tls.crt, tls.key and ca.crt for demo-lowmark-relays.prod.svc.cluster.local",
    ),
    "a relay with the certificate of a shard": (
        {"tls": TLS, "auth": {"enabled": False}, "relays": {"replicas": 1, "tlsSecret": "certificate"}},
        "may act as a shard",
    ),
    "a relay whom no authority knows": (
        {"relays": {"replicas": 1, "tlsSecret": "mine"}}, "relays.tlsSecret without tls.existingSecret",
    ),
    "a relay with what only shards have": (
        {"relays": {"replicas": 1, "settings": {"lease_ms": 500}}}, "relays.settings",
    ),
    "processes that cannot know each other": (
        {
            "shards": 2, "tls": {**TLS, "requireClientCertificates": False},
            "auth": {**AUTH, "clientSecret": "t"},
        },
        "needs auth.peerSecret",
    ),
    "a dashboard that may see nothing": (
        {"tls": TLS, "auth": {**AUTH, "clientSecret": "t"}, "dashboard": {"enabled": True}},
        "needs auth.peerSecret",
    ),
    "dashboards of nothing": (
        {"metrics": {"dashboards": {"enabled": True}}}, "needs metrics.enabled",
    ),
    "a monitor of nothing": (
        {"metrics": {"serviceMonitor": {"enabled": True}}}, "needs metrics.enabled",
    ),
    "alerts on nothing": ({"metrics": {"rules": {"enabled": True}}}, "would never fire"),
    "an alert that is not there": (
        {"metrics": {"enabled": True, "rules": {"enabled": True, "disabled": ["LowmarkNice"]}}},
        "there is no such alert; there are LowmarkMinTimeStalled",
    ),
    "local trackers of no pipeline": ({"localTrackers": {"enabled": True}}, "localTrackers.pipeline"),
    "a sidecar of no pipeline": ({"sidecar": {"enabled": True}}, "sidecar.pipeline"),
    "no time to end": (
        {"tracker": {"preStopSleepSeconds": 30}}, "at least 10 seconds longer",
    ),
    "one port for two": ({"tracker": {"healthPort": 7070}}, "must differ"),
    "one port for two, with metrics": (
        {"metrics": {"enabled": True, "port": 7070}}, "must differ",
    ),
    "two names of a pipeline": (
        {"pipelines": {"p": {"name": "q", "segments": ["a"]}}}, "make both the same",
    ),
    "a secret in the environment": (
        {"tracker": {"extraEnv": [{"name": "REDIS_PASSWORD", "value": "hush"}]}},
        "take it from a secret with valueFrom.secretKeyRef",
    ),
    "a setting that is not there": ({"shard": 3}, "shard"),
    "no shards": ({"shards": 0}, "shards"),
    "too many shards": ({"shards": 65}, "shards"),
    "a store that is not there": ({"store": {"kind": "postgres"}}, "store.kind"),
    "a digest that is none": ({"image": {"digest": "latest"}}, "digest"),
    "no number": ({"tracker": {"settings": {"lease_ms": "soon"}}}, "lease_ms"),
    "a lease that is too short": ({"tracker": {"settings": {"lease_ms": 10}}}, "lease_ms"),
    "a size without a unit": ({"store": {"sqlite": {"size": "10"}}}, "size"),
    "a name that is no file": ({"pipelines": {"a b": {"segments": ["a"]}}}, "a b"),
    "a pipeline without segments": ({"pipelines": {"p": {"fronts": 1}}}, "segments"),
    "a group that is not there": (
        {"groups": 2, "groupOverrides": {"2": {"shards": 2}}}, "groupOverrides has group 2, and groups is 2",
    ),
    "groups in one store": ({"groups": 2, "store": REDIS}, "groupOverrides.1.store.redis to another"),
    "groups in one store, said twice": (
        {"groups": 2, "store": REDIS, "groupOverrides": {"1": {"store": REDIS}}}, "not each has a store of its own",
    ),
    "a group with certificates of its own": (
        {"groups": 2, "groupOverrides": {"1": {"tls": {}}}}, "groupOverrides",
    ),
    "overrides of the first group": ({"groupOverrides": {"0": {"shards": 2}}}, "groupOverrides"),
    "a service for those outside": ({"service": {"type": "LoadBalancer"}}, "service.type"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_bad_values_are_refused_with_advice(what: str) -> None:
    values, advice = BAD[what]
    with pytest.raises(RefusedValues) as refused:
        render(values)
    said = str(refused.value)
    assert advice in said or advice.replace(".", "/") in said, said
    assert "hush" not in said and "u:secret@" not in said


@pytest.mark.parametrize(
    ("url", "ports"),
    [("redis://r", [6379]), ("redis://[fd00::1]:6380/0", [6380]),
     ("redis+cluster://r-0:6379,r-1:6380?replicas=1", [6379, 6380]), ("redis://r:7000", None)],
)  # fmt: skip
def test_a_store_that_a_policy_lets_pods_reach_is_taken(url: str, ports: list[int] | None) -> None:
    policy = {"enabled": False} if ports is None else {"storePorts": ports}
    store = {"kind": "redis", "redis": {"url": url}}
    assert render({"store": store, "networkPolicy": policy}).objects


def test_a_password_in_the_values_is_not_repeated() -> None:
    with pytest.raises(RefusedValues) as refused:
        render({"store": {"kind": "redis", "redis": {"url": "redis://u:open-sesame@r:6379"}}})
    assert "open-sesame" not in str(refused.value)


AUTH_OF_ALL = {
    "enabled": True, "existingSecret": "t", "clientSecret": "c", "peerSecret": "p",
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "advice"),
    [
        (
            {"tracker": {"settings": {"block_slots": 32}}},
            "tracker.settings.block_slots is 32, and the tracker that runs has 64",
        ),
        ({"initialShards": 3}, "initialShards is 3, and the release began with 2"),
        ({"shards": 3, "standbys": 1}, "Set standbys to 0"),
        ({"shards": 3, "hooks": {"enabled": False}}, "Set hooks.enabled to true"),
        ({"shards": 1, "hooks": {"enabled": False}}, "Set hooks.enabled to true"),
        ({"shards": 3, "tls": TLS, "auth": AUTH_OF_ALL}, "set auth.adminSecret"),
        (
            {
                "shards": 3,
                "tls": TLS,
                "auth": {**AUTH_OF_ALL, "adminSecret": "a", "peerSecret": ""},
            },
            "set auth.peerSecret",
        ),
    ],
)
def test_an_upgrade_that_would_lose_shards_is_refused(changed: dict[str, Any], advice: str) -> None:
    running = {"store": REDIS, "shards": 2}
    before = render(running)
    render_upgrade({**running, "standbys": 2}, before)
    render_upgrade({**running, "shards": 3}, before)
    with pytest.raises(RefusedValues) as refused:
        render_upgrade({**running, **changed}, before)
    assert advice in str(refused.value)


def test_a_group_does_not_go_before_its_pipelines_have() -> None:
    before = render({"groups": 3})
    with pytest.raises(RefusedValues, match=r"groups changes from 3 to 2 without hooks\.enabled"):
        render_upgrade({"groups": 2, "hooks": {"enabled": False}}, before)


def test_groups_in_redis_have_a_store_each() -> None:
    another = {"store": {"redis": {"url": "redis://another:6379"}}}
    assert (
        len(
            render({"groups": 2, "store": REDIS, "groupOverrides": {"1": another}}).kind(
                "StatefulSet"
            )
        )
        == 2
    )


def test_shards_do_not_change_while_standbys_serve_them() -> None:
    before = render({"store": REDIS, "shards": 2, "standbys": 1})
    with pytest.raises(RefusedValues, match="set standbys to 0 in an upgrade of its own first"):
        render_upgrade({"store": REDIS, "shards": 3}, before)


def test_without_a_cluster_to_ask_the_values_say_how_it_began() -> None:
    found = render({"shards": 3, "initialShards": 1}).one("StatefulSet")
    (container,) = found["spec"]["template"]["spec"]["containers"]
    assert argument(container, "--peers").count(",") == 0
    assert setting(container, "members").count(",") == 2
    with pytest.raises(RefusedValues, match="Set standbys to 0"):
        render({"store": REDIS, "shards": 3, "initialShards": 1, "standbys": 1})


def test_a_release_that_begins_does_not_wait_for_shards_without_pods() -> None:
    """It waited for ever. One that has got smaller has begun with more, which nobody knows without a cluster to ask."""
    smaller = {"shards": 2, "initialShards": 3}
    with pytest.raises(
        RefusedValues, match=r"initialShards is 3 and shards is 2.*Leave initialShards out"
    ):
        render_into_cluster(smaller)
    with pytest.raises(RefusedValues, match=r"groupOverrides\.NUMBER\.initialShards to 1"):
        render_into_cluster(
            {"groups": 2, "shards": 3, "initialShards": 3, "groupOverrides": {"1": {"shards": 1}}}
        )
    render_into_cluster({"shards": 3, "initialShards": 1})
    render_upgrade(smaller, render({"shards": 3}))
    render(smaller)


def test_good_values_beside_the_bad_ones_pass() -> None:
    """So that it is not the form of the test's values that is refused."""
    render({"tls": TLS, "auth": {"enabled": False}})
    render({"store": REDIS, "standbys": 1, "pipelines": PIPELINES, "tls": TLS})
