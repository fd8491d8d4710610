{{/* Names of the release's objects. Pods and claims derive longer ones, so 45 bytes at most. */}}
{{- define "leaderd.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 45 | trimSuffix "-" -}}
{{- else -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 45 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 45 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "leaderd.headless" -}}{{ include "leaderd.fullname" . }}-headless{{- end -}}

{{- define "leaderd.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "leaderd.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{/* What selects the release's objects. It never changes, since selectors cannot. */}}
{{- define "leaderd.selectorLabels" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "leaderd.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "leaderd.commonLabels" . }}
{{- end -}}

{{/* Labels of pods: without the chart's version, a new one of which must not restart them. */}}
{{- define "leaderd.commonLabels" -}}
{{ include "leaderd.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: leaderd
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The label that lets a pod through the network policy. */}}
{{- define "leaderd.clientLabel" -}}{{ include "leaderd.fullname" . }}-client{{- end -}}

{{/* An image's name: takes (dict "image" IMAGE "context" $). */}}
{{- define "leaderd.image" -}}
{{- $name := .image.repository -}}
{{- if .image.registry }}{{ $name = printf "%s/%s" (trimSuffix "/" .image.registry) $name }}{{ end -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $name .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (.image.tag | default .context.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* DNS name of a control pod: takes (dict "pod" NAME "context" $). */}}
{{- define "leaderd.podHost" -}}
{{- printf "%s.%s.%s.svc.%s" .pod (include "leaderd.headless" .context) .context.Release.Namespace .context.Values.clusterDomain -}}
{{- end -}}

{{/* host:port of the service for clients. */}}
{{- define "leaderd.address" -}}
{{- printf "%s.%s.svc.%s:%d" (include "leaderd.fullname" .) .Release.Namespace .Values.clusterDomain (int .Values.service.port) -}}
{{- end -}}

{{- define "leaderd.embedded" -}}{{ if eq .Values.etcd.mode "embedded" }}true{{ end }}{{- end -}}

{{/* What can never change in a release, in one word. */}}
{{- define "leaderd.shape" -}}
{{- if include "leaderd.embedded" . }}embedded-{{ .Values.control.replicas }}{{ if .Values.etcd.embedded.tls }}-tls{{ end }}{{ else }}external{{ end -}}
{{- end -}}

{{/* Whether the data of control pods is on a volume. */}}
{{- define "leaderd.persistent" -}}
{{- if or (include "leaderd.embedded" .) .Values.control.persistence.enabled }}true{{ end -}}
{{- end -}}

{{- define "leaderd.tlsSecret" -}}
{{- if .Values.tls.certManager.enabled -}}
{{- .Values.tls.existingSecret | default (printf "%s-tls" (include "leaderd.fullname" .)) -}}
{{- else -}}
{{- .Values.tls.existingSecret -}}
{{- end -}}
{{- end -}}
