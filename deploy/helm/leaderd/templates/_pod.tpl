{{/*
The parts of a pod that control and executor nodes share. All take
(dict "context" $ "node" VALUES "component" NAME …).
*/}}

{{- define "leaderd.podLabels" -}}
{{ include "leaderd.commonLabels" .context }}
app.kubernetes.io/component: {{ .component }}
leaderd/node: "true"
{{- with .node.podLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "leaderd.probe" -}}
{{- $probe := dict "httpGet" (dict "path" .path "port" "ops") "periodSeconds" .period "timeoutSeconds" 3 "failureThreshold" .failures -}}
{{- toYaml (mergeOverwrite $probe (deepCopy .over)) -}}
{{- end -}}

{{/* Files for TLS, as variables, so that the command line in a pod finds them too. */}}
{{- define "leaderd.tlsEnv" -}}
{{- if .Values.tls.enabled }}
- {name: LEADERD_TLS_CA_FILE, value: /etc/leaderd/tls/ca.crt}
- {name: LEADERD_TLS_CERT_FILE, value: /etc/leaderd/tls/tls.crt}
- {name: LEADERD_TLS_KEY_FILE, value: /etc/leaderd/tls/tls.key}
{{- end }}
{{- end -}}

{{/* 85 % of a memory limit in whole Mi or Gi, for the Go runtime; others are left to extraEnv. */}}
{{- define "leaderd.memLimit" -}}
{{- $limit := dig "limits" "memory" "" .node.resources | toString -}}
{{- $mib := 0 -}}
{{- if regexMatch "^[0-9]+Mi$" $limit }}{{ $mib = trimSuffix "Mi" $limit | int }}{{ end -}}
{{- if regexMatch "^[0-9]+Gi$" $limit }}{{ $mib = mul 1024 (trimSuffix "Gi" $limit | int) }}{{ end -}}
{{- $given := false -}}
{{- range .node.extraEnv }}{{ if eq .name "GOMEMLIMIT" }}{{ $given = true }}{{ end }}{{ end -}}
{{- if and $mib (not $given) }}
- {name: GOMEMLIMIT, value: {{ printf "%dMiB" (div (mul $mib 85) 100) }}}
{{- end }}
{{- end -}}

{{- define "leaderd.container" -}}
{{- $values := .context.Values -}}
name: leaderd
image: {{ include "leaderd.image" (dict "image" .image "context" .context) }}
imagePullPolicy: {{ .image.pullPolicy }}
args:
  - serve
  {{- with .node.extraArgs }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
env:
  - {name: LEADERD_CONFIG, value: /etc/leaderd/config/leaderd.yaml}
  - name: LEADERD_NAME
    valueFrom: {fieldRef: {fieldPath: metadata.name}}
  {{- if eq .component "control" }}
  {{- $host := include "leaderd.podHost" (dict "pod" "$(LEADERD_NAME)" "context" .context) }}
  - {name: LEADERD_ADVERTISE, value: {{ printf "%s:7400" $host | quote }}}
  # Where the command line in this pod asks.
  - {name: LEADERD_ADDRESS, value: {{ printf "%s:7400" $host | quote }}}
  {{- if $values.etcd.auth.existingSecret }}
  - name: LEADERD_ETCD_USERNAME
    valueFrom: {secretKeyRef: {name: {{ $values.etcd.auth.existingSecret }}, key: {{ $values.etcd.auth.usernameKey }}}}
  {{- end }}
  {{- else }}
  - {name: LEADERD_ADDRESS, value: {{ include "leaderd.address" .context | quote }}}
  {{- end }}
  {{- with include "leaderd.tlsEnv" .context }}{{ . | trim | nindent 2 }}{{ end }}
  {{- with include "leaderd.memLimit" . }}{{ . | trim | nindent 2 }}{{ end }}
  {{- with .node.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .node.extraEnvFrom }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end }}
ports:
  {{- if eq .component "control" }}
  - {name: grpc, containerPort: 7400}
  {{- if include "leaderd.embedded" .context }}
  - {name: etcd-peer, containerPort: 7403}
  {{- end }}
  {{- end }}
  - {name: ops, containerPort: 7401}
livenessProbe:
  {{- include "leaderd.probe" (dict "path" "/livez" "period" 10 "failures" 3 "over" .node.livenessProbe) | nindent 2 }}
readinessProbe:
  {{- include "leaderd.probe" (dict "path" "/readyz" "period" 5 "failures" 2 "over" .node.readinessProbe) | nindent 2 }}
{{- if .preStop }}
lifecycle:
  preStop: {sleep: {seconds: {{ .preStop }}}}
{{- end }}
resources: {{- toYaml .node.resources | nindent 2 }}
securityContext: {{- toYaml $values.securityContext | nindent 2 }}
volumeMounts:
  - {name: config, mountPath: /etc/leaderd/config, readOnly: true}
  - {name: data, mountPath: /var/lib/leaderd}
  - {name: tmp, mountPath: /tmp}
  {{- with include "leaderd.secretMounts" . }}{{ . | trim | nindent 2 }}{{ end }}
  {{- with .node.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "leaderd.secretMounts" -}}
{{- $values := .context.Values -}}
{{- if $values.tls.enabled }}
- {name: tls, mountPath: /etc/leaderd/tls, readOnly: true}
{{- end }}
{{- if eq .component "control" }}
{{- if $values.etcd.tls.existingSecret }}
- {name: etcd-tls, mountPath: /etc/leaderd/etcd-tls, readOnly: true}
{{- end }}
{{- if $values.etcd.auth.existingSecret }}
- {name: etcd-auth, mountPath: /etc/leaderd/etcd-auth, readOnly: true}
{{- end }}
{{- end }}
{{- end -}}

{{- define "leaderd.secretVolumes" -}}
{{- $values := .context.Values -}}
{{- if $values.tls.enabled }}
- name: tls
  secret: {secretName: {{ include "leaderd.tlsSecret" .context }}, defaultMode: 0440}
{{- end }}
{{- if eq .component "control" }}
{{- if $values.etcd.tls.existingSecret }}
- name: etcd-tls
  secret: {secretName: {{ $values.etcd.tls.existingSecret }}, defaultMode: 0440}
{{- end }}
{{- if $values.etcd.auth.existingSecret }}
- name: etcd-auth
  secret:
    secretName: {{ $values.etcd.auth.existingSecret }}
    defaultMode: 0440
    items: [{key: {{ $values.etcd.auth.passwordKey }}, path: password}]
{{- end }}
{{- end }}
{{- end -}}

{{- define "leaderd.spread" -}}
{{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- maxSkew: 1
  topologyKey: {{ $key }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "leaderd.selectorLabels" $.context | nindent 6 }}
      app.kubernetes.io/component: {{ $.component }}
  {{- if eq $.component "executor" }}
  matchLabelKeys: [pod-template-hash]
  {{- end }}
{{- end }}
{{- end -}}

{{/* spec of a pod; "grace" is its terminationGracePeriodSeconds. */}}
{{- define "leaderd.podSpec" -}}
{{- $values := .context.Values -}}
{{- with $values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
serviceAccountName: {{ include "leaderd.serviceAccount" .context }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext: {{- toYaml $values.podSecurityContext | nindent 2 }}
terminationGracePeriodSeconds: {{ .grace }}
{{- with .node.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .node.initContainers }}
initContainers: {{- toYaml . | nindent 2 }}
{{- end }}
containers:
  - {{- include "leaderd.container" . | nindent 4 }}
  {{- with .node.extraContainers }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
topologySpreadConstraints:
  {{- if kindIs "slice" .node.topologySpreadConstraints }}
  {{- toYaml .node.topologySpreadConstraints | nindent 2 }}
  {{- else }}
  {{- with include "leaderd.spread" . }}{{ . | trim | nindent 2 }}{{ end }}
  {{- end }}
{{- with .node.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .node.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .node.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  - name: config
    configMap: {name: {{ include "leaderd.fullname" .context }}-{{ .component }}}
  - {name: tmp, emptyDir: {}}
  {{- if not .claim }}
  - {name: data, emptyDir: {}}
  {{- end }}
  {{- with include "leaderd.secretVolumes" . }}{{ . | trim | nindent 2 }}{{ end }}
  {{- with .node.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* The command line as a container of its own, for hooks and tests: takes also "args" and "resources". */}}
{{- define "leaderd.clientContainer" -}}
image: {{ include "leaderd.image" (dict "image" .context.Values.image "context" .context) }}
imagePullPolicy: {{ .context.Values.image.pullPolicy }}
args: {{- toYaml .args | nindent 2 }}
env:
  - {name: LEADERD_ADDRESS, value: {{ include "leaderd.address" .context | quote }}}
  {{- with include "leaderd.tlsEnv" .context }}{{ . | trim | nindent 2 }}{{ end }}
resources: {{- toYaml .resources | nindent 2 }}
securityContext: {{- toYaml .context.Values.securityContext | nindent 2 }}
{{- end -}}

{{- define "leaderd.clientPodSpec" -}}
restartPolicy: {{ .restartPolicy }}
{{- with .context.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext: {{- toYaml .context.Values.podSecurityContext | nindent 2 }}
{{- end -}}

{{- define "leaderd.clientLabels" -}}
{{ include "leaderd.labels" .context }}
app.kubernetes.io/component: {{ .component }}
{{ include "leaderd.clientLabel" .context }}: "true"
{{- end -}}
