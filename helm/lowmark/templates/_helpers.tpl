{{- define "lowmark.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- /* At most 40 characters: what is appended must fit into the 63 of a label, with a pod's number. */ -}}
{{- define "lowmark.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "lowmark.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "lowmark.selector" -}}
app.kubernetes.io/name: {{ include "lowmark.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "lowmark.labels" -}}
{{ include "lowmark.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | trunc 63 | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
{{- end -}}

{{- define "lowmark.image" -}}
{{- if .Values.image.digest -}}
{{ printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else -}}
{{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end -}}
{{- end -}}

{{- define "lowmark.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "lowmark.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{- define "lowmark.peersService" -}}
{{ include "lowmark.fullname" . }}-peers
{{- end -}}

{{- /* The set of a group's pods. Group 0 is as a release without groups. */ -}}
{{- define "lowmark.set" -}}
{{ include "lowmark.fullname" . }}{{ with .group }}-group-{{ . }}{{ end }}
{{- end -}}

{{- /* By which the pods of a further group are known beside those of group 0, whose labels never change. A set owns no pod of another
name. */ -}}
{{- define "lowmark.groupLabel" -}}
{{- with .group }}lowmark.dev/group: {{ . | quote }}{{ end -}}
{{- end -}}

{{- /* Of a tracker pod, by number: its name in DNS. */ -}}
{{- define "lowmark.podHost" -}}
{{- $root := index . 0 -}}
{{ printf "%s-%v.%s.%s.svc.%s" (include "lowmark.set" $root) (index . 1) (include "lowmark.peersService" $root) $root.Release.Namespace $root.Values.clusterDomain }}
{{- end -}}

{{- /* The annotations of the set that runs; none where Helm has no cluster to ask, and at an install. */ -}}
{{- define "lowmark.was" -}}
{{- $running := lookup "apps/v1" "StatefulSet" .Release.Namespace (include "lowmark.set" .) -}}
{{- dig "metadata" "annotations" (dict) $running | toJson -}}
{{- end -}}

{{- /* Whether Helm has a cluster to ask: each namespace has this there. Empty if not, or if the namespace is still to be made. */ -}}
{{- define "lowmark.asksCluster" -}}
{{- if lookup "v1" "ConfigMap" .Release.Namespace "kube-root-ca.crt" }}yes{{ end -}}
{{- end -}}

{{- /* With how many shards the release began: what each of those pods was from the start never changes. */ -}}
{{- define "lowmark.initialShards" -}}
{{- $was := fromJson (include "lowmark.was" .) -}}
{{- index $was "lowmark.dev/initialShards" | default .Values.initialShards | default .Values.shards -}}
{{- end -}}

{{- /* host:port of the pods that have shards now, in order. */ -}}
{{- define "lowmark.members" -}}
{{- $all := list -}}
{{- range $pod := until (int .Values.shards) -}}
{{- $all = append $all (printf "%s:%v" (include "lowmark.podHost" (list $ $pod)) $.Values.tracker.port) -}}
{{- end -}}
{{ join "," $all }}
{{- end -}}

{{- /* host:port of the first shards, in order. */ -}}
{{- define "lowmark.peers" -}}
{{- $all := list -}}
{{- range $shard := until (include "lowmark.initialShards" . | int) -}}
{{- $all = append $all (printf "%s:%v" (include "lowmark.podHost" (list $ $shard)) $.Values.tracker.port) -}}
{{- end -}}
{{ join "," $all }}
{{- end -}}

{{- /* host:port of all processes of a group, standbys too. */ -}}
{{- define "lowmark.groupTarget" -}}
{{- $all := list -}}
{{- range $pod := until (add (int .Values.shards) (int .Values.standbys) | int) -}}
{{- $all = append $all (printf "%s:%v" (include "lowmark.podHost" (list $ $pod)) $.Values.tracker.port) -}}
{{- end -}}
{{ join "," $all }}
{{- end -}}

{{- /* host:port of whom clients ask: all processes of all groups. What is done to one group's shards is asked of that alone. */ -}}
{{- define "lowmark.target" -}}
{{- if hasKey . "group" -}}
{{ include "lowmark.groupTarget" . }}
{{- else -}}
{{- $all := list -}}
{{- range $group := until (int .Values.groups) -}}
{{- $all = append $all (include "lowmark.groupTarget" (dict "Values" (fromYaml (include "lowmark.groupValues" (list $ $group))) "Release" $.Release "Chart" $.Chart "group" $group)) -}}
{{- end -}}
{{ join "," $all }}
{{- end -}}
{{- end -}}

{{- /* The values of a group, by number: those of the release, and its own over them. */ -}}
{{- define "lowmark.groupValues" -}}
{{- $values := (index . 0).Values -}}
{{- mergeOverwrite (deepCopy $values) (get $values.groupOverrides (toString (index . 1)) | default dict) | toYaml -}}
{{- end -}}

{{- /* The restricted profile of the pod security standards, and a root file system that is read only. */ -}}
{{- define "lowmark.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "lowmark.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "lowmark.podCommon" -}}
serviceAccountName: {{ include "lowmark.serviceAccount" . }}
{{ include "lowmark.podOfAnyAccount" . }}
{{- end -}}

{{- define "lowmark.podOfAnyAccount" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "lowmark.podSecurity" . | nindent 2 }}
{{- end -}}

{{- /* By which the processes are dialled, those of pods that come later too, and, through a forwarded port, from
elsewhere. No client's certificate is for one of these. */ -}}
{{- define "lowmark.hosts" -}}
{{- $name := include "lowmark.fullname" . -}}
{{- $short := printf "%s.%s" $name .Release.Namespace -}}
{{- list
  (printf "*.%s.%s.svc.%s" (include "lowmark.peersService" .) .Release.Namespace .Values.clusterDomain)
  (printf "%s.svc.%s" $short .Values.clusterDomain) (printf "%s.svc" $short) $short $name "localhost" "127.0.0.1"
  | toJson -}}
{{- end -}}

{{- define "lowmark.relays" -}}
{{ include "lowmark.fullname" . }}-relays
{{- end -}}

{{- /* The components whose pods are asked by clients, and the name of what each has for itself: service, budget, policy. */ -}}
{{- define "lowmark.served" -}}
{{- $served := dict "tracker" (include "lowmark.fullname" .) -}}
{{- if gt (int .Values.relays.replicas) 0 -}}{{- $_ := set $served "relay" (include "lowmark.relays" .) -}}{{- end -}}
{{- $served | toJson -}}
{{- end -}}

{{- /* By which relays are dialled: by none of the names of a shard. */ -}}
{{- define "lowmark.relayHosts" -}}
{{- $short := printf "%s.%s" (include "lowmark.relays" .) .Release.Namespace -}}
{{- list (printf "%s.svc.%s" $short .Values.clusterDomain) (printf "%s.svc" $short) $short (include "lowmark.relays" .) "localhost" "127.0.0.1"
  | toJson -}}
{{- end -}}

{{- /* What is on, and in which secret each part lies: in one of the values, or in one that is made here. Without
an own set of tokens each of its secrets is made, so that all of them are known to the file of hashes. */ -}}
{{- define "lowmark.security" -}}
{{- $v := .Values -}}
{{- $name := include "lowmark.fullname" . -}}
{{- $tls := and (not $v.security.insecure) $v.tls.enabled -}}
{{- $auth := and $tls $v.auth.enabled -}}
{{- $ownTls := and $tls (not $v.tls.existingSecret) -}}
{{- $ownTokens := and $auth (not $v.auth.existingSecret) -}}
{{- $made := ternary $name "" $ownTokens -}}
{{- dict
  "tls" $tls
  "auth" $auth
  "issued" (and $ownTls $v.tls.certManager.enabled)
  "makesCertificates" (and $ownTls (not $v.tls.certManager.enabled))
  "makesTokens" $ownTokens
  "certificate" (ternary (printf "%s-certificate" $name) $v.tls.existingSecret $ownTls)
  "clientCertificate" (ternary (printf "%s-client-certificate" $name) $v.tls.clientSecret $ownTls)
  "relayCertificate" (ternary (printf "%s-relay-certificate" $name) $v.relays.tlsSecret $ownTls)
  "certKey" (ternary "tls.crt" $v.tls.certKey $ownTls)
  "privateKeyKey" (ternary "tls.key" $v.tls.privateKeyKey $ownTls)
  "caKey" (ternary "ca.crt" $v.tls.caKey $ownTls)
  "tokens" (ternary (printf "%s-tokens" $name) $v.auth.existingSecret $ownTokens)
  "tokensKey" (ternary "tokens.yaml" $v.auth.tokensKey $ownTokens)
  "tokenKey" (ternary "token" $v.auth.clientTokenKey $ownTokens)
  "clientToken" (ternary ($v.auth.clientSecret | default (ternary (printf "%s-client-token" $made) "" $ownTokens)) "" $auth)
  "peerToken" (ternary ($v.auth.peerSecret | default (ternary (printf "%s-peer-token" $made) "" $ownTokens)) "" $auth)
  "adminToken" (ternary ($v.auth.adminSecret | default (ternary (printf "%s-admin-token" $made) "" $ownTokens)) "" $auth)
  | toJson -}}
{{- end -}}

{{- /* The secrets that the job fills, which alone it may look at and write. */ -}}
{{- define "lowmark.madeSecrets" -}}
{{- $security := fromJson (include "lowmark.security" .) -}}
{{- $all := list -}}
{{- if $security.makesCertificates -}}
{{- $all = concat $all (list "authority" "certificate" "client-certificate") -}}
{{- if gt (int .Values.relays.replicas) 0 -}}{{- $all = append $all "relay-certificate" -}}{{- end -}}
{{- end -}}
{{- if $security.makesTokens -}}
{{- $all = concat $all (list "tokens" "client-token" "peer-token" "admin-token") -}}
{{- end -}}
{{- $names := list -}}
{{- range $all -}}{{- $names = append $names (printf "%s-%s" (include "lowmark.fullname" $) .) -}}{{- end -}}
{{- $names | toJson -}}
{{- end -}}

{{- /* How a client of the tracker is told where it is and who it is itself. */ -}}
{{- define "lowmark.clientEnv" -}}
{{- $security := fromJson (include "lowmark.security" .) -}}
- name: LOWMARK_TARGET
  value: {{ include "lowmark.target" . | quote }}
{{- if $security.tls }}
- name: LOWMARK_TLS_CA
  value: /etc/lowmark/tls/ca.crt
{{- if $security.clientCertificate }}
- name: LOWMARK_TLS_CERT
  value: /etc/lowmark/tls/tls.crt
- name: LOWMARK_TLS_KEY
  value: /etc/lowmark/tls/tls.key
{{- end }}
{{- end }}
{{- if $security.clientToken }}
- name: LOWMARK_TOKEN_FILE
  value: /etc/lowmark/client/token
{{- end }}
{{- end -}}

{{- define "lowmark.clientMounts" -}}
{{- $security := fromJson (include "lowmark.security" .) -}}
{{- if $security.tls }}
- name: tls
  mountPath: /etc/lowmark/tls
  readOnly: true
{{- end }}
{{- if $security.clientToken }}
- name: client
  mountPath: /etc/lowmark/client
  readOnly: true
{{- end }}
- name: tmp
  mountPath: /tmp
{{- end -}}

{{- define "lowmark.tlsVolume" -}}
{{- $security := fromJson (include "lowmark.security" (index . 0)) -}}
- name: tls
  secret:
    secretName: {{ index . 1 }}
    defaultMode: 0440
    items:
      - key: {{ $security.certKey }}
        path: tls.crt
      - key: {{ $security.privateKeyKey }}
        path: tls.key
      - key: {{ $security.caKey }}
        path: ca.crt
{{- end -}}

{{- /* A volume of one file: its name, the secret, the key there, the file. */ -}}
{{- define "lowmark.fileVolume" -}}
- name: {{ index . 0 }}
  secret:
    secretName: {{ index . 1 }}
    defaultMode: 0440
    items:
      - key: {{ index . 2 }}
        path: {{ index . 3 }}
{{- end -}}

{{- define "lowmark.tmpVolume" -}}
- name: tmp
  emptyDir:
    sizeLimit: 64Mi
{{- end -}}

{{- define "lowmark.clientVolumes" -}}
{{- $security := fromJson (include "lowmark.security" .) -}}
{{- /* Never the certificate of the trackers: whoever has that may act as a shard. */}}
{{- if and $security.tls $security.clientCertificate }}
{{ include "lowmark.tlsVolume" (list . $security.clientCertificate) }}
{{- else if $security.tls }}
- name: tls
  secret:
    secretName: {{ $security.certificate }}
    defaultMode: 0440
    items:
      - key: {{ $security.caKey }}
        path: ca.crt
{{- end }}
{{- if $security.clientToken }}
{{ include "lowmark.fileVolume" (list "client" $security.clientToken $security.tokenKey "token") }}
{{- end }}
{{ include "lowmark.tmpVolume" . }}
{{- end -}}

{{- /* What every process that serves is told, a tracker's and a relay: where it listens, whom it lets in. `settings`: its further
ones. */ -}}
{{- define "lowmark.serveArgs" -}}
{{- $v := .root.Values -}}
{{- $security := fromJson (include "lowmark.security" .root) -}}
- --listen=0.0.0.0:{{ $v.tracker.port }}
- --set=health_listen=0.0.0.0:{{ $v.tracker.healthPort }}
{{- range $name, $value := .settings }}
- --set={{ $name }}={{ if kindIs "float64" $value }}{{ int64 $value }}{{ else }}{{ $value }}{{ end }}
{{- end }}
- --json
{{- if $security.tls }}
- --tls-cert=/etc/lowmark/tls/tls.crt
- --tls-key=/etc/lowmark/tls/tls.key
{{- if $v.tls.requireClientCertificates }}
- --tls-ca=/etc/lowmark/tls/ca.crt
{{- end }}
{{- end }}
{{- if $security.auth }}
- --tokens=/etc/lowmark/auth/tokens.yaml
{{- end }}
{{- if $v.metrics.enabled }}
- --metrics-listen=0.0.0.0:{{ $v.metrics.port }}
{{- end }}
{{- if $v.dashboard.enabled }}
- --dashboard-listen=0.0.0.0:{{ $v.dashboard.port }}
{{- end }}
{{- end -}}

{{- /* Its ports, probes and end. `live`: the process runs. `ready`: it serves a shard, or waits while all shards are served, so
that an upgrade goes on behind a standby that has taken a shard over; or it is a relay. */ -}}
{{- define "lowmark.serveLife" -}}
{{- $tracker := .Values.tracker -}}
ports:
  - name: grpc
    containerPort: {{ $tracker.port }}
  - name: health
    containerPort: {{ $tracker.healthPort }}
  {{- if .Values.metrics.enabled }}
  - name: metrics
    containerPort: {{ .Values.metrics.port }}
  {{- end }}
  {{- if .Values.dashboard.enabled }}
  - name: dashboard
    containerPort: {{ .Values.dashboard.port }}
  {{- end }}
startupProbe:
  grpc:
    port: {{ $tracker.healthPort }}
    service: live
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: {{ max 1 (div (int $tracker.startupTimeoutSeconds) 2) }}
livenessProbe:
  grpc:
    port: {{ $tracker.healthPort }}
    service: live
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  grpc:
    port: {{ $tracker.healthPort }}
    service: ready
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 2
{{- if gt (int $tracker.preStopSleepSeconds) 0 }}
lifecycle:
  # Its address is taken out of the service first; then it gives away what it has, and ends.
  preStop:
    sleep:
      seconds: {{ $tracker.preStopSleepSeconds }}
{{- end }}
{{- end -}}
