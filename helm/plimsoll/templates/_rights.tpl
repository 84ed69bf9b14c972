{{/* Rules of files/rights.yaml, without those of values that are false; "scope": namespaced or
     cluster.  What each is for goes along as a comment. */}}
{{- define "plimsoll.rules" -}}
{{- $values := dict "verification.enabled" .root.Values.verification.enabled "verification.executors" (and .root.Values.verification.enabled .root.Values.verification.executors) "verification.drills" (and .root.Values.verification.enabled .root.Values.verification.drills) "rbac.readNodes" .root.Values.rbac.readNodes "metrics.podMonitor.perLogCluster" .root.Values.metrics.podMonitor.perLogCluster "externalAccess.tlsRoutes" .root.Values.externalAccess.tlsRoutes "certManager.enabled" .root.Values.certManager.enabled }}
{{- range get (.root.Files.Get "files/rights.yaml" | fromYaml) .scope }}
{{- if or (not .when) (get $values (.when | default "")) }}
# {{ .why }}
- {{ .rule | toYaml | nindent 2 | trim }}
{{- end }}
{{- end }}
{{- end }}
