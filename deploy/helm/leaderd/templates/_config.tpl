{{/* leaderd.yaml of all nodes: takes (dict "context" $ "node" VALUES "roles" LIST "overrides" CONFIG). */}}
{{- define "leaderd.commonConfig" -}}
{{- $values := .context.Values -}}
{{- $config := dict
  "data_dir" "/var/lib/leaderd"
  "roles" .roles
  "capacity" (int .node.capacity)
  "ops_listen" "0.0.0.0:7401"
  "log" (dict "level" $values.log.level "format" $values.log.format)
  "executor" (dict "drain_grace" (printf "%ds" (int .node.drainGraceSeconds))) -}}
{{- with .node.nodeLabels }}{{ $_ := set $config "labels" . }}{{ end -}}
{{- toYaml $config -}}
{{- end -}}

{{- define "leaderd.controlConfig" -}}
{{- $roles := ternary (list "control" "executor") (list "control") .Values.control.executor -}}
{{- $config := include "leaderd.commonConfig" (dict "context" . "node" .Values.control "roles" $roles) | fromYaml -}}
{{- $_ := set $config "listen" "0.0.0.0:7400" -}}
{{- $etcd := dict "prefix" .Values.etcd.prefix -}}
{{- if include "leaderd.embedded" . -}}
  {{- $context := . -}}
  {{- $members := list -}}
  {{- $scheme := ternary "https" "http" .Values.etcd.embedded.tls -}}
  {{- range $i := until (int .Values.control.replicas) -}}
    {{- $pod := printf "%s-%d" (include "leaderd.fullname" $context) $i -}}
    {{- $members = append $members (printf "%s=%s://%s:7403" $pod $scheme (include "leaderd.podHost" (dict "pod" $pod "context" $context))) -}}
  {{- end -}}
  {{- $_ := set $etcd "embedded" (dict
    "client_listen" "127.0.0.1:7402"
    "peer_listen" "0.0.0.0:7403"
    "initial_cluster" $members
    "initial_cluster_token" (printf "%s/%s" .Release.Namespace (include "leaderd.fullname" .))
    "quota_bytes" .Values.etcd.embedded.quota
    "compaction_retention" .Values.etcd.embedded.compactionRetention) -}}
  {{- if .Values.etcd.embedded.tls -}}
    {{- $_ := set $etcd.embedded "peer_tls" (dict
      "ca_file" "/etc/leaderd/tls/ca.crt" "cert_file" "/etc/leaderd/tls/tls.crt" "key_file" "/etc/leaderd/tls/tls.key") -}}
  {{- end -}}
{{- else -}}
  {{- $_ := set $etcd "endpoints" .Values.etcd.endpoints -}}
  {{- if .Values.etcd.auth.existingSecret }}{{ $_ := set $etcd "password_file" "/etc/leaderd/etcd-auth/password" }}{{ end -}}
  {{- $tls := dict -}}
  {{- if .Values.etcd.tls.existingSecret -}}
    {{- $_ := set $tls "ca_file" "/etc/leaderd/etcd-tls/ca.crt" -}}
    {{- if .Values.etcd.tls.clientCertificate -}}
      {{- $_ := set $tls "cert_file" "/etc/leaderd/etcd-tls/tls.crt" -}}
      {{- $_ := set $tls "key_file" "/etc/leaderd/etcd-tls/tls.key" -}}
    {{- end -}}
  {{- end -}}
  {{- with .Values.etcd.tls.serverName }}{{ $_ := set $tls "server_name" . }}{{ end -}}
  {{- if .Values.etcd.tls.insecureSkipVerify }}{{ $_ := set $tls "insecure_skip_verify" true }}{{ end -}}
  {{- if $tls }}{{ $_ := set $etcd "tls" $tls }}{{ end -}}
{{- end -}}
{{- $_ := set $config "etcd" $etcd -}}
{{- toYaml (mergeOverwrite $config (deepCopy .Values.config)) -}}
{{- end -}}

{{- define "leaderd.executorConfig" -}}
{{- $context := . -}}
{{- $config := include "leaderd.commonConfig" (dict "context" . "node" .Values.executor "roles" (list "executor")) | fromYaml -}}
{{- $addresses := list -}}
{{- range $i := until (int .Values.control.replicas) -}}
  {{- $pod := printf "%s-%d" (include "leaderd.fullname" $context) $i -}}
  {{- $addresses = append $addresses (printf "%s:7400" (include "leaderd.podHost" (dict "pod" $pod "context" $context))) -}}
{{- end -}}
{{- $_ := set $config "control_addresses" $addresses -}}
{{- toYaml (mergeOverwrite $config (deepCopy .Values.config) (deepCopy .Values.executor.config)) -}}
{{- end -}}
