{{- define "isthmus.image" -}}
{{ .registry }}/{{ .name }}:{{ .tag }}{{ with .digest }}@{{ . }}{{ end }}
{{- end }}

{{- define "isthmus.labels" -}}
app.kubernetes.io/name: isthmus
app.kubernetes.io/part-of: isthmus
{{- end }}

{{- define "isthmus.resolver" -}}
isthmus.{{ .Release.Namespace }}.svc.{{ .Values.dns.clusterDomain }}:7400
{{- end }}

{{- define "isthmus.sentry" -}}
dapr-sentry.{{ .Values.dapr.namespace }}.svc.{{ .Values.dns.clusterDomain }}:443
{{- end }}

{{/* isthmus.yaml: what the values say, and .Values.config over it. */}}
{{- define "isthmus.config" -}}
{{- $base := include "isthmus.config.base" . | fromYaml -}}
{{- with $base.Error }}{{ fail (printf "isthmus.config: %s" .) }}{{ end -}}
{{- mergeOverwrite $base (deepCopy .Values.config) | toYaml -}}
{{- end }}

{{- define "isthmus.config.base" -}}
cluster: {{ required "cluster is missing: this cluster's name, another one in each, such as --set cluster=west" .Values.cluster | quote }}
dataDir: /var/lib/isthmus
{{- if not .Values.config.store }}
store: {kubernetes: {}}
{{- end }}
instances: {kubernetes: {}}
{{- if gt (int .Values.replicas) 1 }}
replicas: {addresses: [{{ include "isthmus.resolver" . | quote }}]}
{{- end }}
identity:
  {{- if ne .Release.Namespace "isthmus-system" }}
  namespace: {{ .Release.Namespace }}
  {{- end }}
  trustAnchorsFrom: {configMap: {{ .Values.dapr.trustBundle }}}
  sentry:
    address: {{ include "isthmus.sentry" . }}
    namespace: {{ .Values.dapr.namespace }}
    trustDomain: {{ .Values.dapr.trustDomain }}
listen:
  resolver: 0.0.0.0:7400
  gateway: 0.0.0.0:{{ .Values.gateway.port }}
  {{- if .Values.dns.enabled }}
  dns: 0.0.0.0:7453
  {{- end }}
  admin: 0.0.0.0:7480
  operator: unix:///var/lib/isthmus/operator.sock
  {{- if .Values.operators.enabled }}
  kubernetes: 127.0.0.1:7482
  {{- end }}
{{- if .Values.gateway.service.enabled }}
gateway: {internal: ["isthmus-gateway.{{ .Release.Namespace }}.svc.{{ .Values.dns.clusterDomain }}:{{ .Values.gateway.port }}"]}
{{- end }}
{{- if .Values.guests.secret }}
guests: {key: /etc/isthmus/guests/guests.pem}
{{- end }}
dns:
  kubernetes: {{ .Values.dns.clusterDomain }}
  {{- if .Values.dns.enabled }}
  forwarders: {{ toJson .Values.dns.forwarders }}
  {{- end }}
{{- end }}

{{/* What pods of Isthmus may do, and the token by which Sentry knows them. */}}
{{- define "isthmus.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "isthmus.containerSecurity" -}}
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
{{- end }}

{{- define "isthmus.sentryToken" -}}
sources:
- serviceAccountToken:
    path: token
    audience: spiffe://{{ .Values.dapr.trustDomain }}/ns/{{ .Values.dapr.namespace }}/dapr-sentry
    expirationSeconds: 7200
{{- end }}

{{/* actors.yaml of the bridge in a namespace. */}}
{{- define "isthmus.actors" -}}
{{- $v := .root.Values -}}
cluster: {{ $v.cluster | quote }}
namespace: {{ .namespace }}
resolver: {{ include "isthmus.resolver" .root }}
{{- if ne .root.Release.Namespace "isthmus-system" }}
resolverNamespace: {{ .root.Release.Namespace }}
{{- end }}
identity:
  trustAnchorsFrom: {configMap: {{ $v.dapr.trustBundle }}}
  sentry:
    address: {{ include "isthmus.sentry" .root }}
    namespace: {{ $v.dapr.namespace }}
    trustDomain: {{ $v.dapr.trustDomain }}
listen: 0.0.0.0:50002
metrics: 0.0.0.0:7461
placement: {{ $v.actors.placement | default (printf "dapr-placement-server.%s.svc.%s:50005" $v.dapr.namespace $v.dns.clusterDomain) }}
maxBodySize: {{ $v.actors.maxBodySize }}
{{- end }}

{{/* What the configuration of the service reads or writes besides, for its rights. */}}
{{- define "isthmus.kubernetes" -}}
{{- $c := include "isthmus.config" . | fromYaml -}}
{{- $instances := dig "instances" "kubernetes" dict $c | default dict -}}
endpoints: {{ hasKey (dig "instances" dict $c) "kubernetes" }}
pods: {{ or (dig "declared" "annotations" false $c) (dig "serviceAccounts" false $instances) (dig "zoneLabel" "" $instances) (dig "versionLabel" "" $instances) | not | not }}
objects: {{ hasKey (dig "store" dict $c) "kubernetes" }}
translate: {{ dig "store" "kubernetes" "translate" list $c | not | not }}
policies: {{ dig "policies" "kubernetes" "kinds" list $c | default list | toJson }}
operators: {{ dig "listen" "kubernetes" "" $c | not | not }}
{{- end }}
