{{- define "stockd.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "stockd.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "stockd.labels" -}}
{{ include "stockd.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "stockd.image" -}}
{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag }}{{ end }}
{{- end }}

{{/* What every pod may not do. The image's user is 65532. */}}
{{- define "stockd.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "stockd.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* The pods of helm test, as a peer of a NetworkPolicy. */}}
{{- define "stockd.testPods" -}}
- podSelector:
    matchLabels:
      app.kubernetes.io/name: {{ .Chart.Name }}-test
      app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* A volume with some keys of the Secret: a list of the names in secretKeys, and of keys by themselves. */}}
{{- define "stockd.secrets" -}}
- name: secrets
  secret:
    secretName: {{ .root.Values.existingSecret }}
    defaultMode: 0440
    items:
      {{- range .keys }}
      {{- with index $.root.Values.secretKeys . }}
      - {key: {{ . | quote }}, path: {{ . | quote }}}
      {{- end }}
      {{- end }}
      {{- range .files }}
      - {key: {{ . | quote }}, path: {{ . | quote }}}
      {{- end }}
{{- end }}

{{/* The variables of stockd for files of the Secret, where their keys are set. */}}
{{- define "stockd.secretEnv" -}}
{{- $files := dict "adminToken" "ADMIN_TOKEN_FILE" "databasePassword" "DATABASE_PASSWORD_FILE" "buyerKeys" "BUYER_JWKS_FILE" "redisPassword" "REDIS_PASSWORD_FILE" "etcdPassword" "ETCD_PASSWORD_FILE" "zookeeperAuth" "ZOOKEEPER_AUTH_FILE" "queueSecret" "QUEUE_SECRET_FILE" }}
{{- range $key, $variable := $files }}
{{- with index $.Values.secretKeys $key }}
- {name: STOCKD_{{ $variable }}, value: {{ printf "/run/secrets/stockd/%s" . | quote }}}
{{- end }}
{{- end }}
{{- end }}

{{/* What config sets, as variables: of the keys that begin with a prefix. */}}
{{- define "stockd.configEnv" -}}
{{- range $key, $value := .root.Values.config }}
{{- if hasPrefix $.prefix $key }}
- {name: STOCKD_{{ $key | replace "." "_" | upper }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}
{{- end }}
