{{/* What all charts of the cloud controller managers share. What differs between them is in _provider.tpl. */}}

{{- define "ccm.name" -}}
{{- default .Chart.Name .Values.name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "ccm.fullName" -}}
{{- $name := include "ccm.name" . }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "ccm.chart" -}}
{{- printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "ccm.labels" -}}
helm.sh/chart: {{ include "ccm.chart" . }}
{{ include "ccm.selectorLabels" . }}
{{- if .Chart.AppVersion }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "ccm.image" -}}
{{- printf "%s:%s" .Values.deployment.image.name (.Values.deployment.image.tag | default .Chart.AppVersion) }}
{{- end }}

{{/* Flags that this chart's values stand for, beside those of the provider. */}}
{{- define "ccm.flags" -}}
{{- with .Values.verbosity }}
- --v={{ . }}
{{- end }}
{{- if ne (int .Values.securePort) 10258 }}
- --secure-port={{ .Values.securePort }}
{{- end }}
{{- if not .Values.leaderElection.enabled }}
- --leader-elect=false
{{- end }}
{{- range .Values.deployment.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{/* A manager must run where nothing else runs yet: it is what makes nodes usable. */}}
{{- define "ccm.tolerations" -}}
- key: node.cloudprovider.kubernetes.io/uninitialized
  operator: Exists
  effect: NoSchedule
- key: node-role.kubernetes.io/control-plane
  operator: Exists
  effect: NoSchedule
- key: node-role.kubernetes.io/master
  operator: Exists
  effect: NoSchedule
- key: node-role.kubernetes.io/etcd
  operator: Exists
  effect: NoSchedule
- key: node-role.kubernetes.io/etcd
  operator: Exists
  effect: NoExecute
- key: node.kubernetes.io/not-ready
  operator: Exists
  effect: NoSchedule
- key: node.kubernetes.io/unreachable
  operator: Exists
  effect: NoSchedule
- key: node.kubernetes.io/network-unavailable
  operator: Exists
  effect: NoSchedule
- key: CriticalAddonsOnly
  operator: Exists
{{- with .Values.deployment.tolerations }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "ccm.affinity" -}}
{{- if .Values.deployment.affinity }}
{{- toYaml .Values.deployment.affinity }}
{{- else if gt (int .Values.deployment.replicas) 1 -}}
podAntiAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    - topologyKey: kubernetes.io/hostname
      labelSelector:
        matchLabels:
          {{- include "ccm.selectorLabels" . | nindent 10 }}
{{- end }}
{{- end }}

{{- define "ccm.probes" -}}
livenessProbe:
  httpGet:
    path: /healthz
    port: {{ .Values.securePort }}
    scheme: HTTPS
  initialDelaySeconds: 20
  periodSeconds: 30
  timeoutSeconds: 5
readinessProbe:
  httpGet:
    path: /readyz
    port: {{ .Values.securePort }}
    scheme: HTTPS
  periodSeconds: 10
  timeoutSeconds: 5
{{- end }}
