{{/* What is special about the manager of this cloud. */}}

{{- define "ccm.selectorLabels" -}}
app.kubernetes.io/name: {{ include "ccm.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
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

{{- define "ccm.secretName" -}}
{{ .Values.credentials.secretName | default (include "ccm.fullName" .) }}
{{- end }}

{{/* Whether it keeps load balancers for Services. */}}
{{- define "ccm.loadBalancers" -}}
true
{{- end }}

{{- define "ccm.command" -}}
- /usr/bin/oxide-cloud-controller-manager
- --cloud-provider=oxide
{{- if ne .Values.leaderElection.resourceName "cloud-controller-manager" }}
- --leader-elect-resource-name={{ .Values.leaderElection.resourceName }}
{{- end }}
{{- if .Values.useServiceAccountCredentials }}
- --use-service-account-credentials=true
{{- end }}
{{- if .Values.cloudConfig }}
- --cloud-config=/etc/oxide/config/cloud-config.yaml
{{- end }}
{{- end }}

{{- define "ccm.env" -}}
- name: OXIDE_HOST
  valueFrom:
    secretKeyRef:
      name: {{ include "ccm.secretName" . }}
      key: oxide-host
{{- if .Values.credentials.hotReload }}
- name: OXIDE_TOKEN_FILE
  value: /etc/oxide/secret/oxide-token
{{- else }}
- name: OXIDE_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ include "ccm.secretName" . }}
      key: oxide-token
{{- end }}
- name: OXIDE_PROJECT
  valueFrom:
    secretKeyRef:
      name: {{ include "ccm.secretName" . }}
      key: oxide-project
{{- end }}

{{- define "ccm.volumes" -}}
{{- if .Values.credentials.hotReload }}
- name: credentials
  secret:
    secretName: {{ include "ccm.secretName" . }}
    defaultMode: 0440
    items:
      - key: oxide-token
        path: oxide-token
{{- end }}
{{- if .Values.cloudConfig }}
- name: cloud-config
  configMap:
    name: {{ include "ccm.fullName" . }}
{{- end }}
{{- end }}

{{- define "ccm.volumeMounts" -}}
{{- if .Values.credentials.hotReload }}
- name: credentials
  mountPath: /etc/oxide/secret
  readOnly: true
{{- end }}
{{- if .Values.cloudConfig }}
- name: cloud-config
  mountPath: /etc/oxide/config
  readOnly: true
{{- end }}
{{- end }}

{{/* What the pods must be restarted for: settings always, the Secret only when its token is in the environment. */}}
{{- define "ccm.checksums" -}}
{{- if .Values.cloudConfig }}
checksum/cloud-config: {{ toYaml .Values.cloudConfig | sha256sum }}
{{- end }}
{{- if not .Values.credentials.hotReload }}
{{- with lookup "v1" "Secret" .Release.Namespace (include "ccm.secretName" .) }}
checksum/credentials: {{ toYaml .data | sha256sum }}
{{- end }}
{{- end }}
{{- end }}

{{- define "ccm.notes" -}}
It reads its credentials from the Secret {{ include "ccm.secretName" . }} (keys oxide-host, oxide-token and
oxide-project); its pods start once that is there.
{{- end }}
