{{- define "checkdam.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 63 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "checkdam.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "checkdam.labels" -}}
{{ include "checkdam.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "checkdam.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ default (include "checkdam.name" .) .Values.serviceAccount.name }}{{ else }}{{ default "default" .Values.serviceAccount.name }}{{ end }}
{{- end }}

{{- define "checkdam.hasAdmin" -}}
{{- if and .Values.secret.name .Values.secret.adminTokenKey }}yes{{ end }}
{{- end }}

{{/* A value as it was written: whole numbers of values arrive as floats, and would print as 2e+06. */}}
{{- define "checkdam.text" -}}
{{- if and (kindIs "float64" .) (eq . (floor .)) }}{{ printf "%.0f" . }}{{ else }}{{ . }}{{ end }}
{{- end }}

{{/* A secret reaches the program as a file, whose name a variable tells. */}}
{{- define "checkdam.secretVariables" -}}
{{- $secret := .Values.secret }}
{{- if $secret.name }}
{{- with $secret.storeKey }}
- { name: CHECKDAM_STORE_FILE, value: {{ printf "/run/secrets/checkdam/%s" . | quote }} }
{{- end }}
{{- with $secret.databaseKey }}
- { name: CHECKDAM_DATABASE_FILE, value: {{ printf "/run/secrets/checkdam/%s" . | quote }} }
{{- end }}
{{- with $secret.keySecretKey }}
- { name: CHECKDAM_KEY_SECRET_FILE, value: {{ printf "/run/secrets/checkdam/%s" . | quote }} }
{{- end }}
{{- with $secret.apiTokenKey }}
- { name: CHECKDAM_API_TOKEN_FILE, value: {{ printf "/run/secrets/checkdam/%s" . | quote }} }
{{- end }}
{{- with $secret.adminTokenKey }}
- { name: CHECKDAM_ADMIN_TOKEN_FILE, value: {{ printf "/run/secrets/checkdam/%s" . | quote }} }
- { name: CHECKDAM_ADMIN_LISTEN, value: "0.0.0.0:8082" }
{{- end }}
{{- end }}
{{- end }}

{{/* The scheme of the listeners. */}}
{{- define "checkdam.scheme" -}}
{{- if .Values.tls.secretName }}https{{ else }}http{{ end -}}
{{- end }}
