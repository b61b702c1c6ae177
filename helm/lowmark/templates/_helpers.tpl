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

{{- /* Of a tracker pod, by number: its name in DNS. */ -}}
{{- define "lowmark.podHost" -}}
{{- $root := index . 0 -}}
{{ printf "%s-%v.%s.%s.svc.%s" (include "lowmark.fullname" $root) (index . 1) (include "lowmark.peersService" $root) $root.Release.Namespace $root.Values.clusterDomain }}
{{- end -}}

{{- /* The annotations of the set that runs; none where Helm has no cluster to ask, and at an install. */ -}}
{{- define "lowmark.was" -}}
{{- $running := lookup "apps/v1" "StatefulSet" .Release.Namespace (include "lowmark.fullname" .) -}}
{{- dig "metadata" "annotations" (dict) $running | toJson -}}
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

{{- /* host:port of all tracker processes, standbys too: whom clients ask. */ -}}
{{- define "lowmark.target" -}}
{{- $all := list -}}
{{- range $pod := until (add (int .Values.shards) (int .Values.standbys) | int) -}}
{{- $all = append $all (printf "%s:%v" (include "lowmark.podHost" (list $ $pod)) $.Values.tracker.port) -}}
{{- end -}}
{{ join "," $all }}
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
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "lowmark.podSecurity" . | nindent 2 }}
{{- end -}}

{{- /* How a client of the tracker is told where it is and who it is itself. */ -}}
{{- define "lowmark.clientEnv" -}}
- name: LOWMARK_TARGET
  value: {{ include "lowmark.target" . | quote }}
{{- if .Values.tls.enabled }}
- name: LOWMARK_TLS_CA
  value: /etc/lowmark/tls/ca.crt
{{- if .Values.tls.clientSecret }}
- name: LOWMARK_TLS_CERT
  value: /etc/lowmark/tls/tls.crt
- name: LOWMARK_TLS_KEY
  value: /etc/lowmark/tls/tls.key
{{- end }}
{{- end }}
{{- if .Values.auth.clientSecret }}
- name: LOWMARK_TOKEN_FILE
  value: /etc/lowmark/client/token
{{- end }}
{{- end -}}

{{- define "lowmark.clientMounts" -}}
{{- if .Values.tls.enabled }}
- name: tls
  mountPath: /etc/lowmark/tls
  readOnly: true
{{- end }}
{{- if .Values.auth.clientSecret }}
- name: client
  mountPath: /etc/lowmark/client
  readOnly: true
{{- end }}
- name: tmp
  mountPath: /tmp
{{- end -}}

{{- define "lowmark.tlsVolume" -}}
{{- $root := index . 0 -}}
- name: tls
  secret:
    secretName: {{ index . 1 }}
    defaultMode: 0440
    items:
      - key: {{ $root.Values.tls.certKey }}
        path: tls.crt
      - key: {{ $root.Values.tls.privateKeyKey }}
        path: tls.key
      - key: {{ $root.Values.tls.caKey }}
        path: ca.crt
{{- end -}}

{{- define "lowmark.clientVolumes" -}}
{{- /* Never the certificate of the trackers: whoever has that may act as a shard. */}}
{{- if and .Values.tls.enabled .Values.tls.clientSecret }}
{{ include "lowmark.tlsVolume" (list . .Values.tls.clientSecret) }}
{{- else if .Values.tls.enabled }}
- name: tls
  secret:
    secretName: {{ .Values.tls.existingSecret }}
    defaultMode: 0440
    items:
      - key: {{ .Values.tls.caKey }}
        path: ca.crt
{{- end }}
{{- if .Values.auth.clientSecret }}
- name: client
  secret:
    secretName: {{ .Values.auth.clientSecret }}
    defaultMode: 0440
    items:
      - key: {{ .Values.auth.clientTokenKey }}
        path: token
{{- end }}
- name: tmp
  emptyDir:
    sizeLimit: 64Mi
{{- end -}}
