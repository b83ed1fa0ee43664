{{- define "multimirror.labels" -}}
app.kubernetes.io/name: multimirror
app.kubernetes.io/part-of: multimirror
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "multimirror.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}

{{/* How Jobs become ours: `auto` is policies where the API server has them. */}}
{{- define "multimirror.admission" -}}
{{- if eq .Values.admission "auto" -}}
{{- ternary "policies" "webhook" (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy") -}}
{{- else -}}
{{- .Values.admission -}}
{{- end -}}
{{- end }}

{{/* What of admission is rendered, as JSON: `policies`; `webhook`, which is how it fails ("Ignore", "Fail") or ""; `unfinished`: this
is half of a change, and the next upgrade does the rest. Helm waits for nothing, and takes a Service away before the registration that
points at it. So the first upgrade puts what is new beside what is there, and makes the webhook fail open; when what is new is seen to
be there, the next one takes away what was. Where no cluster is asked (`helm template`), what is wanted is all that is rendered.
Decided once for all templates, and kept with the values: the cluster and the time are others a moment later, and a registration that
fails open must not meet policies that go. */}}
{{- define "multimirror.admission.parts" -}}
{{- if not (hasKey .Values "admissionParts") -}}
{{- $_ := set .Values "admissionParts" (include "multimirror.admission.decide" . | fromJson) -}}
{{- end -}}
{{- toJson .Values.admissionParts -}}
{{- end }}

{{- define "multimirror.admission.decide" -}}
{{- $wanted := include "multimirror.admission" . -}}
{{- $parts := dict "policies" (has $wanted (list "policies" "both")) "webhook" (get (dict "webhook" "Fail" "both" "Ignore") $wanted) "unfinished" false -}}
{{- if and .Release.IsUpgrade (ne $wanted "both") (lookup "v1" "Namespace" "" .Release.Namespace) -}}
{{- $closed := false -}}
{{- $registration := lookup "admissionregistration.k8s.io/v1" "MutatingWebhookConfiguration" "" "multimirror" -}}
{{- range ($registration).webhooks -}}
{{- $closed = or $closed (ne .failurePolicy "Ignore") -}}
{{- end -}}
{{- $policies := dict -}}
{{- if .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" -}}
{{- $policies = lookup "admissionregistration.k8s.io/v1" "MutatingAdmissionPolicyBinding" "" "multimirror-labelled-jobs" -}}
{{- end -}}
{{- $available := "" -}}
{{- range (((lookup "apps/v1" "Deployment" .Release.Namespace "multimirror-admission")).status).conditions -}}
{{- if and (eq .type "Available") (eq .status "True") -}}
{{- $available = include "multimirror.settled" .lastTransitionTime -}}
{{- end -}}
{{- end -}}
{{- if eq $wanted "webhook" -}}
{{- if and (not (and $closed (not $policies))) (not (and $registration $available)) -}}
{{- $parts = dict "policies" (not (empty $policies)) "webhook" "Ignore" "unfinished" true -}}
{{- end -}}
{{- else if $registration -}}
{{- $acts := or (eq $wanted "none") (and $policies (include "multimirror.settled" $policies.metadata.creationTimestamp)) -}}
{{- if or $closed (not $acts) -}}
{{- $parts = dict "policies" (eq $wanted "policies") "webhook" "Ignore" "unfinished" true -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $parts -}}
{{- end }}

{{/* "true" for a time of ten seconds ago, or more: API servers have heard of it. A clock that is behind holds up nobody. */}}
{{- define "multimirror.settled" -}}
{{- $age := sub (now | unixEpoch | int64) (toDate "2006-01-02T15:04:05Z07:00" . | unixEpoch | int64) -}}
{{- if or (lt $age 0) (ge $age 10) -}}true{{- end -}}
{{- end }}

{{/* A file of policies for the manager and the size in use: they are generated for the defaults. Call with (list $ name). */}}
{{- define "multimirror.policies" -}}
{{- $root := index . 0 -}}
{{- $size := $root.Values.maxJobBytes | default 262144 | int | toString -}}
{{ $root.Files.Get (index . 1) | replace "multimirror.dev/dispatcher" $root.Values.managedBy | replace "262144" $size }}
{{- end }}

{{/* What all pods have in common. Call with (dict "root" $ "of" values "component" name "account" name "command" text "ports" text), and "clientCA" with the name of a ConfigMap. */}}
{{- define "multimirror.pod" -}}
metadata:
  labels:
    {{- include "multimirror.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
    {{- with .of.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    kubectl.kubernetes.io/default-container: {{ .component }}
    {{- with .of.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ .account }}
  automountServiceAccountToken: true
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ .of.terminationGracePeriodSeconds }}
  {{- with .of.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .root.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    seccompProfile:
      type: RuntimeDefault
  {{- with .of.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .of.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .of.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  topologySpreadConstraints:
    {{- if .of.topologySpreadConstraints }}
    {{- toYaml .of.topologySpreadConstraints | nindent 4 }}
    {{- else }}
    {{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
    - topologyKey: {{ $key }}
      maxSkew: 1
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          app.kubernetes.io/name: multimirror
          app.kubernetes.io/component: {{ $.component }}
    {{- end }}
    {{- end }}
  {{- with .clientCA }}
  volumes:
    - name: client-ca
      configMap:
        name: {{ . }}
  {{- end }}
  containers:
    - name: {{ .component }}
      image: {{ include "multimirror.image" .root | quote }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      {{- .command | nindent 6 }}
      {{- range .of.env }}
      {{- if has (lower .name) (list "http_proxy" "https_proxy" "all_proxy") }}
      {{- fail (printf "%s: API servers are reached directly; proxies from the environment are not supported" .name) }}
      {{- end }}
      {{- end }}
      {{- with .of.env }}
      env:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        {{- .ports | nindent 8 }}
      {{- if .clientCA }}
      volumeMounts:
        - name: client-ca
          mountPath: /etc/multimirror/client-ca
          readOnly: true
      {{- end }}
      livenessProbe:
        httpGet:
          path: /healthz
          port: metrics
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        httpGet:
          path: /readyz
          port: metrics
        periodSeconds: 5
        timeoutSeconds: 5
      resources:
        {{- toYaml .of.resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: [ALL]
{{- end }}
