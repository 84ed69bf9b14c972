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

{{/* "image" behind image.registry, unless it names a registry already: a first part with a dot or
     a port, or localhost. */}}
{{- define "plimsoll.ofRegistry" -}}
{{- $first := splitList "/" .image | first }}
{{- $named := and (contains "/" .image) (or (contains "." $first) (contains ":" $first) (eq $first "localhost")) }}
{{- if and .root.Values.image.registry (not $named) }}{{ .root.Values.image.registry | trimSuffix "/" }}/{{ end }}{{ .image }}
{{- end }}

{{- define "plimsoll.image" -}}
{{- $image := .Values.image -}}
{{- include "plimsoll.ofRegistry" (dict "root" . "image" $image.repository) }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "plimsoll.brokerImage" -}}
{{- $image := required (printf "images.broker has no entry for version %s" .Chart.AppVersion) (get .Values.images.broker .Chart.AppVersion) }}
{{- include "plimsoll.ofRegistry" (dict "root" . "image" $image) }}
{{- end }}

{{- define "plimsoll.brokerImages" -}}
{{- $pairs := list }}
{{- range $release, $image := .Values.images.broker }}{{ $pairs = append $pairs (printf "%s=%s" $release (include "plimsoll.ofRegistry" (dict "root" $ "image" $image))) }}{{ end }}
{{- join "," $pairs }}
{{- end }}

{{- define "plimsoll.sparkImage" -}}
{{- $image := required "verification.enabled needs images.spark" .Values.images.spark }}
{{- include "plimsoll.ofRegistry" (dict "root" . "image" $image) }}
{{- end }}

{{/* Names of imagePullSecrets, for pods that the operator makes. */}}
{{- define "plimsoll.pullSecretNames" -}}
{{- $names := list }}
{{- range .Values.imagePullSecrets }}{{ $names = append $names .name }}{{ end }}
{{- join "," $names }}
{{- end }}

{{/* "true" or nothing.  `helm upgrade --reuse-values` from an earlier chart brings no such value. */}}
{{- define "plimsoll.setUser" -}}
{{- if (.Values.podSecurity | default (dict "setUser" true)).setUser }}true{{ end }}
{{- end }}

{{- define "plimsoll.podSecurity" -}}
runAsNonRoot: true
{{- if include "plimsoll.setUser" . }}
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "plimsoll.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Labels of what hooks make: never the operator's own selector, which its Service selects by. */}}
{{- define "plimsoll.hookLabels" -}}
app.kubernetes.io/name: plimsoll
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{/* The pod of a hook that runs `plimsoll preflight` with "arguments" as "account". */}}
{{- define "plimsoll.preflightPod" -}}
{{- $values := .root.Values }}
restartPolicy: Never
serviceAccountName: {{ .account }}
automountServiceAccountToken: true
enableServiceLinks: false
{{- with $values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext: {{- include "plimsoll.podSecurity" .root | nindent 2 }}
containers:
- name: preflight
  image: {{ include "plimsoll.image" .root }}
  imagePullPolicy: {{ $values.image.pullPolicy }}
  command: [python3, -m, plimsoll_operator.cli, preflight]
  args:
  - --namespace={{ .root.Release.Namespace }}
  {{- range $values.watch.namespaces }}
  - --watch-namespace={{ . }}
  {{- end }}
  - --set=rbac.readNodes={{ $values.rbac.readNodes }}
  - --set=verification.enabled={{ $values.verification.enabled }}
  - --set=verification.executors={{ and $values.verification.enabled $values.verification.executors }}
  - --set=verification.drills={{ and $values.verification.enabled $values.verification.drills }}
  - --set=metrics.podMonitor.perLogCluster={{ $values.metrics.podMonitor.perLogCluster }}
  - --set=externalAccess.tlsRoutes={{ $values.externalAccess.tlsRoutes }}
  - --set=certManager.enabled={{ $values.certManager.enabled }}
  {{- range .arguments }}
  - {{ . }}
  {{- end }}
  resources:
    requests: {cpu: 50m, memory: 96Mi}
    limits: {memory: 256Mi}
  securityContext: {{- include "plimsoll.containerSecurity" .root | nindent 4 }}
  volumeMounts:
  - {name: tmp, mountPath: /tmp}
volumes:
- name: tmp
  emptyDir: {sizeLimit: 64Mi}
{{- with $values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}

{{- /* Namespaces with brokers: those that are named, or watched; without any, all. */}}
{{- define "plimsoll.brokerNamespaces" -}}
{{- with (.Values.networkPolicy.brokerNamespaces | default .Values.watch.namespaces) -}}
matchExpressions:
- {key: kubernetes.io/metadata.name, operator: In, values: {{ toJson . }}}
{{- else -}}
{}
{{- end }}
{{- end }}

{{- define "plimsoll.controllerAddress" -}}
{{ include "plimsoll.name" . }}-controller.{{ .Release.Namespace }}.svc:{{ .Values.controller.port }}
{{- end }}
