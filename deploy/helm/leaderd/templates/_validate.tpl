{{/*
What the schema cannot tell. Each message names the value, what is wrong and what
is allowed.
*/}}
{{- define "leaderd.validate" -}}
{{- $etcd := .Values.etcd -}}
{{- if include "leaderd.embedded" . -}}
  {{- if $etcd.endpoints -}}
    {{- fail "etcd.endpoints: there are some, but etcd.mode is embedded; set etcd.mode=external to use them" -}}
  {{- end -}}
  {{- if $etcd.auth.existingSecret -}}
    {{- fail "etcd.auth.existingSecret: only for etcd.mode=external; the embedded etcd has no users" -}}
  {{- end -}}
  {{- if and $etcd.embedded.tls (not .Values.tls.enabled) -}}
    {{- fail "etcd.embedded.tls: needs tls.enabled=true, whose secret it uses" -}}
  {{- end -}}
  {{- if not (has (int .Values.control.replicas) (list 1 3)) -}}
    {{- fail (printf "control.replicas: %d is neither 1 nor 3, as embedded etcd wants it; use an external etcd for more" (int .Values.control.replicas)) -}}
  {{- end -}}
{{- else -}}
  {{- if not $etcd.endpoints -}}
    {{- fail "etcd.endpoints: etcd.mode=external needs at least one, such as https://etcd-0.etcd:2379" -}}
  {{- end -}}
  {{- if $etcd.embedded.tls -}}
    {{- fail "etcd.embedded.tls: only for etcd.mode=embedded; for an external one use etcd.tls and https endpoints" -}}
  {{- end -}}
{{- end -}}
{{- if and .Values.tls.enabled (not (include "leaderd.tlsSecret" .)) -}}
  {{- fail "tls.existingSecret: tls.enabled needs it, or tls.certManager.enabled=true" -}}
{{- end -}}
{{- if .Values.tls.certManager.enabled -}}
  {{- if not .Values.tls.enabled -}}
    {{- fail "tls.certManager.enabled: needs tls.enabled=true too" -}}
  {{- end -}}
  {{- if not .Values.tls.certManager.issuerRef.name -}}
    {{- fail "tls.certManager.issuerRef.name: required with tls.certManager.enabled" -}}
  {{- end -}}
{{- end -}}
{{- if not (or .Values.control.executor .Values.executor.enabled) -}}
  {{- fail "control.executor: false, and executor.enabled is false too: nothing would run jobs" -}}
{{- end -}}
{{- if and .Values.metrics.podMonitor.enabled .Values.metrics.serviceMonitor.enabled -}}
  {{- fail "metrics.serviceMonitor.enabled: metrics.podMonitor.enabled is set too, and all would be scraped twice" -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) -}}
  {{- fail "ingress.hosts: ingress.enabled needs at least one" -}}
{{- end -}}
{{- range $kind, $route := dict "httpRoute" .Values.gateway.httpRoute "grpcRoute" .Values.gateway.grpcRoute -}}
  {{- if and $route.enabled (not $route.parentRefs) -}}
    {{- fail (printf "gateway.%s.parentRefs: gateway.%s.enabled needs at least one" $kind $kind) -}}
  {{- end -}}
{{- end -}}
{{- include "leaderd.validateConfig" (dict "path" "config" "config" .Values.config) -}}
{{- include "leaderd.validateConfig" (dict "path" "executor.config" "config" .Values.executor.config) -}}
{{- include "leaderd.validateShape" . -}}
{{- end -}}

{{/* Settings that the chart makes are not to be had in a second place. */}}
{{- define "leaderd.validateConfig" -}}
{{- $path := .path -}}
{{- $ours := dict
  "name" "it is the pod's name"
  "data_dir" "it is where the volume is"
  "roles" "use control.executor and executor.enabled"
  "labels" "use control.nodeLabels and executor.nodeLabels"
  "capacity" "use control.capacity and executor.capacity"
  "listen" "the port is 7400"
  "advertise" "it is the pod's DNS name"
  "ops_listen" "the port is 7401"
  "control_addresses" "they are the control pods"
  "tls" "use the values tls.…"
  "log" "use the values log.…" -}}
{{- range $key, $value := .config -}}
  {{- if hasKey $ours $key -}}
    {{- fail (printf "%s.%s: the chart sets this: %s" $path $key (get $ours $key)) -}}
  {{- end -}}
{{- end -}}
{{- range $key, $value := (.config.etcd | default dict) -}}
  {{- if ne $key "dial_timeout" -}}
    {{- fail (printf "%s.etcd.%s: the chart sets this: use the values etcd.…" $path $key) -}}
  {{- end -}}
{{- end -}}
{{- if hasKey (.config.executor | default dict) "drain_grace" -}}
  {{- fail (printf "%s.executor.drain_grace: the chart sets this: use control.drainGraceSeconds and executor.drainGraceSeconds" $path) -}}
{{- end -}}
{{- end -}}

{{/* Kubernetes would refuse some of these changes with a riddle, and etcd others with the loss of its quorum. */}}
{{- define "leaderd.validateShape" -}}
{{- $now := lookup "apps/v1" "StatefulSet" .Release.Namespace (include "leaderd.fullname" .) -}}
{{- if $now -}}
  {{- $was := get ($now.metadata.annotations | default dict) "leaderd/etcd" -}}
  {{- $want := include "leaderd.shape" . -}}
  {{- if and $was (ne $was $want) -}}
    {{- fail (printf "etcd.mode, control.replicas, etcd.embedded.tls: this release is %s and cannot become %s; install another release and move the jobs, see docs/kubernetes.md" $was $want) -}}
  {{- end -}}
{{- end -}}
{{- end -}}
