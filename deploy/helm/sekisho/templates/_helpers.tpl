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
{{ .Values.image.repository }}:{{ .Values.image.tag | default (printf "%s%s" .Chart.AppVersion (ternary "-python" "" .Values.python.enabled)) }}
{{- end }}

{{/* The configuration: what the values say, and what the chart decides. */}}
{{- define "sekisho.config" -}}
{{- $chart := dict "server" (dict "listen" "0.0.0.0:8080" "metrics_listen" "0.0.0.0:9090") }}
{{- if .Values.cluster.enabled }}
{{- $_ := set $chart.server "shutdown_delay_seconds" (include "sekisho.drainSeconds" . | int) }}
{{- $_ := set $chart "store" (dict "url" "${SEKISHO_DATABASE_URL}") }}
{{- $cluster := dict "enabled" true }}
{{- if .Values.cluster.forwarding.enabled }}
{{- $_ := set $cluster "address" (printf "${POD_IP}:%d" (int .Values.cluster.forwarding.port)) }}
{{- $_ := set $cluster "secret" "${SEKISHO_CLUSTER_SECRET}" }}
{{- end }}
{{- $_ := set $chart "cluster" $cluster }}
{{- end }}
{{- if .Values.policies }}
{{- $_ := set $chart "policy" (dict "directory" "/etc/sekisho/policies") }}
{{- end }}
{{- mergeOverwrite (deepCopy .Values.config) $chart | toYaml }}
{{- end }}

{{/* How long a pod that is to stop still answers. */}}
{{- define "sekisho.drainSeconds" -}}
{{- $server := .Values.config.server | default dict }}
{{- if hasKey $server "shutdown_delay_seconds" }}{{ $server.shutdown_delay_seconds }}{{ else if .Values.cluster.enabled }}5{{ else }}0{{ end }}
{{- end }}

{{/* Values that are fine each for itself, and not together. */}}
{{- define "sekisho.check" -}}
{{- if not .Values.cluster.enabled }}
{{- if gt (int .Values.replicaCount) 1 }}{{ fail "replicaCount above 1 needs cluster.enabled and its database: gateways that share none would each grant whole rates and budgets" }}{{ end }}
{{- if .Values.autoscaling.enabled }}{{ fail "autoscaling needs cluster.enabled and its database" }}{{ end }}
{{- if .Values.cluster.forwarding.enabled }}{{ fail "cluster.forwarding needs cluster.enabled" }}{{ end }}
{{- else }}
{{- if .Values.persistence.existingClaim }}{{ fail "persistence.existingClaim is for one pod; with cluster.enabled each has its own" }}{{ end }}
{{- if not (or .Values.cluster.database.secret .Values.existingSecret) }}{{ fail "cluster.enabled needs cluster.database.secret or existingSecret, with the URL of the database" }}{{ end }}
{{- if and .Values.cluster.forwarding.enabled (not .Values.existingSecret) }}{{ fail "cluster.forwarding needs existingSecret, with SEKISHO_CLUSTER_SECRET" }}{{ end }}
{{- end }}
{{- $server := .Values.config.server | default dict }}
{{- $grace := 30 }}
{{- if hasKey $server "shutdown_grace_seconds" }}{{ $grace = int $server.shutdown_grace_seconds }}{{ end }}
{{- $stop := add (include "sekisho.drainSeconds" . | int) $grace }}
{{- if le (int .Values.terminationGracePeriodSeconds) (int $stop) }}{{ fail (printf "terminationGracePeriodSeconds must be above server.shutdown_delay_seconds and server.shutdown_grace_seconds together, %d" (int $stop)) }}{{ end }}
{{- end }}

{{- define "sekisho.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}
