{{/* What is special about the manager of this cloud. */}}

{{- define "ccm.selectorLabels" -}}
app: {{ include "ccm.fullName" . }}
{{- end }}

{{- define "ccm.containerName" -}}
cloud-controller-manager
{{- end }}

{{- define "ccm.serviceAccountName" -}}
{{ .Values.serviceAccount.name | default (include "ccm.fullName" .) }}
{{- end }}

{{- define "ccm.roleName" -}}
{{ .Values.rbac.name | default (printf "system:%s" (include "ccm.fullName" .)) }}
{{- end }}

{{- define "ccm.secretName" -}}
{{ .Values.cloudConfig.secretName }}
{{- end }}

{{/* Whether it keeps load balancers for Services; this cloud has none. */}}
{{- define "ccm.loadBalancers" -}}
{{- end }}

{{- define "ccm.command" -}}
- /nvidia-bmm-cloud-controller-manager
- --cloud-provider=nvidia-bmm
- --cloud-config=/etc/nvidia-bmm/cloud-config
- --use-service-account-credentials={{ .Values.useServiceAccountCredentials }}
- --leader-elect={{ .Values.leaderElection.enabled }}
- --leader-elect-resource-name={{ .Values.leaderElection.resourceName }}
{{- end }}

{{- define "ccm.env" -}}
{{- end }}

{{- define "ccm.volumes" -}}
- name: cloud-config
  secret:
    secretName: {{ include "ccm.secretName" . }}
    defaultMode: 0440
    items:
      - key: cloud-config
        path: cloud-config
{{- end }}

{{- define "ccm.volumeMounts" -}}
- name: cloud-config
  mountPath: /etc/nvidia-bmm
  readOnly: true
{{- end }}

{{/* The token is read again when it changes; of the rest the pods must be restarted for. */}}
{{- define "ccm.checksums" -}}
{{- with omit .Values.cloudConfig.content "token" }}
checksum/cloud-config: {{ toYaml . | sha256sum }}
{{- end }}
{{- end }}

{{- define "ccm.notes" -}}
It reads its configuration from the key cloud-config of the Secret {{ include "ccm.secretName" . }}; its pods start once
that is there.
{{- end }}
