{{- define "sekisho.name" -}}
{{- if contains "sekisho" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-sekisho" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "sekisho.selector" -}}
app.kubernetes.io/name: sekisho
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "sekisho.labels" -}}
{{ include "sekisho.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "sekisho.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* The configuration: what the values say, and what the chart decides. */}}
{{- define "sekisho.config" -}}
{{- $chart := dict "server" (dict "listen" "0.0.0.0:8080" "metrics_listen" "0.0.0.0:9090") }}
{{- if .Values.policies }}
{{- $_ := set $chart "policy" (dict "directory" "/etc/sekisho/policies") }}
{{- end }}
{{- mergeOverwrite (deepCopy .Values.config) $chart | toYaml }}
{{- end }}

{{- define "sekisho.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}
