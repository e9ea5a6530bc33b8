{{/* What is special about the manager of this cloud. */}}

{{- define "ccm.selectorLabels" -}}
k8s-app: {{ include "ccm.fullName" . }}
{{- end }}

{{- define "ccm.containerName" -}}
{{ include "ccm.name" . }}
{{- end }}

{{- define "ccm.serviceAccountName" -}}
{{ .Values.serviceAccount.name | default (include "ccm.fullName" .) }}
{{- end }}

{{- define "ccm.roleName" -}}
system:{{ include "ccm.fullName" . }}
{{- end }}

{{/* Whether it keeps load balancers for Services. */}}
{{- define "ccm.loadBalancers" -}}
true
{{- end }}

{{- define "ccm.command" -}}
- /bin/cloudlycke-cloud-controller-manager
- --cloud-provider=cloudlycke
- --cluster-name={{ .Values.clusterName }}
- --use-service-account-credentials={{ .Values.useServiceAccountCredentials }}
{{- if ne .Values.leaderElection.resourceName "cloud-controller-manager" }}
- --leader-elect-resource-name={{ .Values.leaderElection.resourceName }}
{{- end }}
{{- if .Values.cloudConfig }}
- --cloud-config=/etc/cloudlycke/cloud-config.yaml
{{- end }}
{{- end }}

{{- define "ccm.env" -}}
{{- end }}

{{- define "ccm.volumes" -}}
{{- if .Values.cloudConfig }}
- name: cloud-config
  configMap:
    name: {{ include "ccm.fullName" . }}
{{- end }}
{{- end }}

{{- define "ccm.volumeMounts" -}}
{{- if .Values.cloudConfig }}
- name: cloud-config
  mountPath: /etc/cloudlycke
  readOnly: true
{{- end }}
{{- end }}

{{/* The inventory is read again when it changes. */}}
{{- define "ccm.checksums" -}}
{{- end }}

{{- define "ccm.notes" -}}
Its inventory is {{ if .Values.cloudConfig }}in the ConfigMap {{ include "ccm.fullName" . }}{{ else }}the built-in one{{ end }}.
{{- end }}
