{{- /* What values.schema.json cannot say: settings that do not go together. Each failure says what to do. */ -}}
{{- define "lowmark.check" -}}
{{- $v := .Values -}}
{{- $security := fromJson (include "lowmark.security" .) -}}
{{- /* What runs now; nothing where Helm has no cluster to ask. */ -}}
{{- $was := fromJson (include "lowmark.was" .) -}}
{{- $wasBlockSlots := index $was "lowmark.dev/blockSlots" | default "" -}}
{{- if and $wasBlockSlots (ne $wasBlockSlots (toString $v.tracker.settings.block_slots)) -}}
{{- fail (printf "tracker.settings.block_slots is %v, and the tracker that runs has %v: which shard owns a slot follows from it, so it cannot be changed in place. Set it back, or install another release and move the pipelines there." $v.tracker.settings.block_slots $wasBlockSlots) -}}
{{- end -}}
{{- $wasInitial := index $was "lowmark.dev/initialShards" | default "" -}}
{{- if and $wasInitial $v.initialShards (ne $wasInitial (toString $v.initialShards)) -}}
{{- fail (printf "initialShards is %v, and the release began with %v: set it to that, or leave it out." $v.initialShards $wasInitial) -}}
{{- end -}}
{{- if and (not $wasInitial) (gt (int $v.initialShards) (int $v.shards)) (include "lowmark.asksCluster" .) -}}
{{- fail (printf "initialShards is %v and shards is %v, and no release runs here that began with more: it would wait for ever for the shards of pods that are not there. Leave initialShards out (of a group, set groupOverrides.NUMBER.initialShards to %v), or install it with shards %v and upgrade to %v." $v.initialShards $v.shards $v.shards $v.initialShards $v.shards) -}}
{{- end -}}
{{- $wasShards := index $was "lowmark.dev/shards" | default (toString $v.shards) -}}
{{- $wasStandbys := index $was "lowmark.dev/standbys" | default "0" -}}
{{- $changes := ne $wasShards (toString $v.shards) -}}
{{- $joined := ne (include "lowmark.initialShards" .) (toString $v.shards) -}}
{{- if and (or $changes $joined) (gt (int $v.standbys) 0) -}}
{{- fail (printf "shards is %v, the release began with %v, and standbys is %v: a standby may serve the shard of any pod, so which pod is which shard is not known. Set standbys to 0." $v.shards (include "lowmark.initialShards" .) $v.standbys) -}}
{{- end -}}
{{- if and $changes (ne $wasStandbys "0") -}}
{{- fail (printf "shards changes from %v to %v, and the release that runs has %v standbys, which may serve the shard of any pod: set standbys to 0 in an upgrade of its own first." $wasShards $v.shards $wasStandbys) -}}
{{- end -}}
{{- if and $changes (not $v.hooks.enabled) -}}
{{- fail (printf "shards changes from %v to %v with hooks.enabled false: without its jobs shards would be gone before they have handed over what is open, or get no slots. Set hooks.enabled to true." $wasShards $v.shards) -}}
{{- end -}}
{{- if and (or $changes $joined) $security.auth (not $security.peerToken) -}}
{{- fail (printf "shards is %v, and the release began with %v, with tokens of your own: set auth.peerSecret to a secret with a token, any will do: a pod that joins asks with it which shards there are (lowmark credentials token processes --allow '*=subscribe')." $v.shards (include "lowmark.initialShards" .)) -}}
{{- end -}}
{{- if and $changes $security.auth (not $security.adminToken) -}}
{{- fail (printf "shards changes from %v to %v with tokens of your own: set auth.adminSecret to a secret with a token that may do so (lowmark credentials token resizer --allow '*=administer')." $wasShards $v.shards) -}}
{{- end -}}
{{- $wasGroups := index $was "lowmark.dev/groups" | default "1" -}}
{{- if and (not .group) $was (ne (int $wasGroups) (int $v.groups)) (or (not $v.hooks.enabled) (and $security.auth (not $security.adminToken))) -}}
{{- fail (printf "groups changes from %v to %v without hooks.enabled, or with tokens of your own and no auth.adminSecret: pipelines of a group that goes would be gone with it, and one that comes again would be given none. Set hooks.enabled to true, and auth.adminSecret to a secret with a token that may do so (lowmark credentials token groups --allow '*=administer')." $wasGroups $v.groups) -}}
{{- end -}}
{{- range $number, $own := $v.groupOverrides -}}
{{- if ge (int $number) (int $v.groups) -}}
{{- fail (printf "groupOverrides has group %s, and groups is %v, so the last one is %v: leave it out, or have more groups." $number $v.groups (sub (int $v.groups) 1)) -}}
{{- end -}}
{{- end -}}
{{- if and .group (eq $v.store.kind "redis") -}}
{{- $stores := list -}}
{{- range $number := until (int $v.groups) -}}
{{- $store := (fromYaml (include "lowmark.groupValues" (list $.base $number))).store -}}
{{- if eq $store.kind "redis" -}}
{{- $stores = append $stores (printf "%s %s %s" $store.redis.url $store.redis.existingSecret $store.redis.secretKey) -}}
{{- end -}}
{{- end -}}
{{- if ne (len $stores) (len (uniq $stores)) -}}
{{- fail (printf "groups is %v with store.kind redis, and not each has a store of its own: a group is a tracker by itself. Set groupOverrides.%v.store.redis to another address, secret or key of the secret." $v.groups .group) -}}
{{- end -}}
{{- end -}}
{{- if and (eq $v.store.kind "redis") $v.store.redis.url $v.store.redis.existingSecret -}}
{{- fail "store.redis.url and store.redis.existingSecret are both set: keep one. An address with a password belongs into the secret." -}}
{{- end -}}
{{- if and (eq $v.store.kind "redis") (not $v.store.redis.url) (not $v.store.redis.existingSecret) -}}
{{- fail "store.kind is redis, but nothing says where it is: set store.redis.existingSecret to a secret whose key `url` is the address (docs/durability.md has all forms), or store.redis.url where it has no password." -}}
{{- end -}}
{{- if contains "@" $v.store.redis.url -}}
{{- fail "store.redis.url has a user or a password, which would stand in the manifests: put the address into a secret and name that in store.redis.existingSecret." -}}
{{- end -}}
{{- if and $v.networkPolicy.enabled (eq $v.store.kind "redis") $v.store.redis.url -}}
{{- $open := list -}}
{{- range $v.networkPolicy.storePorts -}}{{- $open = append $open (toString (int .)) -}}{{- end -}}
{{- $named := regexFindAll ":[0-9]+([,/?]|$)" $v.store.redis.url -1 -}}
{{- range $named | default (list (ternary ":26379" ":6379" (contains "sentinel://" $v.store.redis.url))) -}}
{{- $port := regexFind "[0-9]+" . -}}
{{- if not (has $port $open) -}}
{{- fail (printf "store.redis.url leads to port %s, and networkPolicy.storePorts has %s: no pod could reach its store. Add it there, with the ports of the servers that sentinels name; or set networkPolicy.enabled to false." $port (join ", " $open)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (or $v.pipelines $v.pipelineConfigMaps) (not $v.hooks.enabled) -}}
{{- fail "pipelines or pipelineConfigMaps names pipelines, and hooks.enabled is false: nobody would register them. Set hooks.enabled to true, or leave them out and register them by lowmark pipelines apply." -}}
{{- end -}}
{{- if and (eq $v.store.kind "sqlite") (gt (int $v.standbys) 0) -}}
{{- fail (printf "standbys is %v, but with store.kind sqlite each pod's volume is its own and a standby could take nothing over: set standbys to 0, or store.kind to redis." $v.standbys) -}}
{{- end -}}
{{- if and (not $v.tls.enabled) (not $v.security.insecure) -}}
{{- fail "tls.enabled is false: everybody who reaches the port would read and write what is tracked, and tokens would travel in the clear. Leave it true, and what it needs is made; or set security.insecure to true, which turns TLS and tokens off." -}}
{{- end -}}
{{- if and $security.tls (not $v.auth.enabled) (not $v.tls.requireClientCertificates) -}}
{{- fail "auth.enabled is false, and so is tls.requireClientCertificates: every client might do everything. Set one of them to true, or security.insecure, which turns TLS and tokens off." -}}
{{- end -}}
{{- if and $v.security.insecure (or $v.tls.existingSecret $v.auth.existingSecret $v.tls.certManager.enabled) -}}
{{- fail "security.insecure turns TLS and tokens off, and tls.existingSecret, tls.certManager or auth.existingSecret says where they come from: keep one." -}}
{{- end -}}
{{- if and $v.tls.existingSecret $v.tls.certManager.enabled -}}
{{- fail "tls.existingSecret and tls.certManager.enabled are both set: keep one." -}}
{{- end -}}
{{- if and $security.tls $v.tls.clientSecret (not $v.tls.existingSecret) -}}
{{- fail "tls.clientSecret without tls.existingSecret: the certificates of processes are made here, by an authority that has not signed yours. Set both, or neither." -}}
{{- end -}}
{{- if and $security.makesTokens (or $v.auth.clientSecret $v.auth.peerSecret $v.auth.adminSecret) -}}
{{- fail "auth.existingSecret is not set, and auth.clientSecret, auth.peerSecret or auth.adminSecret is: the file of tokens would be made without knowing yours. Set auth.existingSecret too, a secret whose key tokens.yaml lists the tokens and their rights; or none of them." -}}
{{- end -}}
{{- if and $security.tls $v.tls.existingSecret $v.tls.requireClientCertificates (not $v.tls.clientSecret) -}}
{{- fail "tls.existingSecret with tls.requireClientCertificates needs tls.clientSecret: a secret with tls.crt, tls.key and ca.crt for the jobs, tests and local trackers of this release. It must be a certificate of its own, not that of tls.existingSecret: whoever has a certificate with the name of a shard's host may act as a shard." -}}
{{- end -}}
{{- if and $security.tls $v.tls.clientSecret (eq $v.tls.clientSecret $v.tls.existingSecret) -}}
{{- fail "tls.clientSecret is tls.existingSecret: clients that have the certificate of the trackers may act as a shard. Give them one of their own." -}}
{{- end -}}
{{- if and $security.tls (gt (int $v.relays.replicas) 0) $v.tls.existingSecret (or (not $v.relays.tlsSecret) (eq $v.relays.tlsSecret $v.tls.existingSecret)) -}}
{{- fail (printf "relays.replicas with tls.existingSecret needs relays.tlsSecret: a secret with tls.crt, tls.key and ca.crt for %s. It must be a certificate of its own, not that of tls.existingSecret: whoever has a certificate with the name of a shard's host may act as a shard." (join ", " (fromJsonArray (include "lowmark.relayHosts" .)))) -}}
{{- end -}}
{{- if and $v.relays.tlsSecret (or (not $security.tls) (not $v.tls.existingSecret)) -}}
{{- fail "relays.tlsSecret without tls.existingSecret: certificates are made here, by an authority that has not signed yours, or TLS is off. Set both, or neither." -}}
{{- end -}}
{{- if and $security.auth (not $security.clientToken) -}}
{{- fail "auth.existingSecret needs auth.clientSecret: a secret whose key `token` is a token for the jobs, tests and local trackers of this release (lowmark credentials token)." -}}
{{- end -}}
{{- if and $security.auth (not $v.tls.requireClientCertificates) (not $security.peerToken) (gt (add (max (int $v.shards) (include "lowmark.initialShards" . | int)) (int $v.standbys) (int $v.groups)) 2) -}}
{{- fail "auth.existingSecret without tls.requireClientCertificates needs auth.peerSecret: processes without certificates of clients know each other by a token with `peer: true` (lowmark credentials token --peer)." -}}
{{- end -}}
{{- if and $security.auth $v.dashboard.enabled (not $security.peerToken) -}}
{{- fail "dashboard.enabled with auth.existingSecret needs auth.peerSecret: the dashboard asks as a client does, with a token that may see all pipelines (lowmark credentials token dashboard --allow '*=subscribe')." -}}
{{- end -}}
{{- if and $v.metrics.serviceMonitor.enabled (not $v.metrics.enabled) -}}
{{- fail "metrics.serviceMonitor.enabled needs metrics.enabled: there would be nothing to scrape." -}}
{{- end -}}
{{- if and $v.metrics.dashboards.enabled (not $v.metrics.enabled) -}}
{{- fail "metrics.dashboards.enabled needs metrics.enabled: they would show nothing." -}}
{{- end -}}
{{- if and $v.metrics.rules.enabled (not $v.metrics.enabled) -}}
{{- fail "metrics.rules.enabled needs metrics.enabled: its alerts would never fire." -}}
{{- end -}}
{{- if and $v.localTrackers.enabled (not $v.localTrackers.pipeline) -}}
{{- fail "localTrackers.enabled needs localTrackers.pipeline: a local tracker serves one pipeline." -}}
{{- end -}}
{{- if and $v.sidecar.enabled (not $v.sidecar.pipeline) -}}
{{- fail "sidecar.enabled needs sidecar.pipeline: a local tracker serves one pipeline." -}}
{{- end -}}
{{- if and (ge (int $v.tracker.preStopSleepSeconds) (int $v.tracker.terminationGracePeriodSeconds)) -}}
{{- fail (printf "tracker.preStopSleepSeconds (%v) leaves nothing of tracker.terminationGracePeriodSeconds (%v) for ending in good order: make the latter at least 10 seconds longer." $v.tracker.preStopSleepSeconds $v.tracker.terminationGracePeriodSeconds) -}}
{{- end -}}
{{- $ports := list $v.tracker.port $v.tracker.healthPort -}}
{{- if $v.metrics.enabled -}}{{- $ports = append $ports $v.metrics.port -}}{{- end -}}
{{- if $v.dashboard.enabled -}}{{- $ports = append $ports $v.dashboard.port -}}{{- end -}}
{{- if ne (len $ports) (len (uniq $ports)) -}}
{{- fail (printf "tracker.port, tracker.healthPort, metrics.port and dashboard.port must differ: %v." $ports) -}}
{{- end -}}
{{- if and $v.localTrackers.enabled $v.metrics.enabled (eq (int $v.localTrackers.port) (int $v.metrics.port)) -}}
{{- fail (printf "localTrackers.port and metrics.port must differ: both are %v." $v.metrics.port) -}}
{{- end -}}
{{- range $name, $pipeline := $v.pipelines -}}
{{- if and (hasKey $pipeline "name") (ne $pipeline.name $name) -}}
{{- fail (printf "pipelines.%s names itself %q: leave its name out, or make both the same." $name $pipeline.name) -}}
{{- end -}}
{{- end -}}
{{- range $v.tracker.extraEnv -}}
{{- if and (regexMatch "(?i)(password|secret|token|lowmark_store)" .name) (hasKey . "value") (not (hasSuffix "_FILE" .name)) -}}
{{- fail (printf "tracker.extraEnv has the value of %s, which looks like a secret and would stand in the manifests: take it from a secret with valueFrom.secretKeyRef." .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
