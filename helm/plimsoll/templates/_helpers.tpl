{{- define "plimsoll.name" -}}
{{- if contains "plimsoll" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-plimsoll" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "plimsoll.selector" -}}
app.kubernetes.io/name: plimsoll
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "plimsoll.labels" -}}
{{ include "plimsoll.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "plimsoll.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "plimsoll.name" .) }}{{ else }}{{ .Values.serviceAccount.name | default "default" }}{{ end }}
{{- end }}

{{- define "plimsoll.image" -}}
{{- $image := .Values.image -}}
{{- with $image.registry }}{{ . }}/{{ end }}{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "plimsoll.brokerImage" -}}
{{- required (printf "images.broker has no entry for version %s" .Chart.AppVersion) (get .Values.images.broker .Chart.AppVersion) }}
{{- end }}

{{- define "plimsoll.brokerImages" -}}
{{- $pairs := list }}
{{- range $release, $image := .Values.images.broker }}{{ $pairs = append $pairs (printf "%s=%s" $release $image) }}{{ end }}
{{- join "," $pairs }}
{{- end }}

{{- define "plimsoll.controllerAddress" -}}
{{ include "plimsoll.name" . }}-controller.{{ .Release.Namespace }}.svc:{{ .Values.controller.port }}
{{- end }}
