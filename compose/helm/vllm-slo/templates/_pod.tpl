{{- /* The parts that depend on values alone, by names of the release. `.` is the context of this chart. */ -}}
{{- define "vllm-slo.selector" -}}
{{ .Values.podLabels | default (dict "app" .Release.Name) | toYaml }}
{{- end }}

{{- define "vllm-slo.adminSecret" -}}
{{ .Values.adminSecret | default (printf "%s-admin" .Release.Name) }}
{{- end }}

{{- define "vllm-slo.scheme" -}}
{{ ternary "https" "http" (not (empty .Values.metricsTls.secret)) }}
{{- end }}

{{- /* Seconds that the hook waits: 10 s more than the drain, for a relay that hangs. */ -}}
{{- define "vllm-slo.hookLimit" -}}
{{ add (int .Values.stop.delay) (int .Values.stop.drain) 10 }}
{{- end }}

{{- define "vllm-slo.dataGiB" -}}
{{ add (int .Values.sidecar.requestLogGiB) 1 }}
{{- end }}

{{- /*
Adds the sidecar to a pod: include "vllm-slo.podTemplate" (dict "chart" CONTEXT "template" TEMPLATE). CONTEXT is the context of this
chart, in a chart that depends on it `index .Subcharts "vllm-slo"`; TEMPLATE has `spec` and perhaps `metadata`. The engine is the first
container.
*/ -}}
{{- define "vllm-slo.podTemplate" -}}
{{- $chart := .chart }}
{{- $template := deepCopy .template }}
{{- include "vllm-slo.check" $chart }}
{{- $metadata := $template.metadata | default dict }}
{{- /* Only the Service selects this label: without it, a pod gets no new connections and keeps its owner, scrapes and policies. */}}
{{- $labels := merge (dict "vllm-slo/serving" "true") ($metadata.labels | default dict) (include "vllm-slo.selector" $chart | fromYaml) }}
{{- $_ := set $metadata "labels" $labels }}
{{- if $chart.Values.scrapeAnnotations.enabled }}
{{- $scrape := dict "prometheus.io/scrape" "true" "prometheus.io/port" (toString $chart.Values.ports.metrics) "prometheus.io/path" "/metrics" "prometheus.io/scheme" (include "vllm-slo.scheme" $chart) }}
{{- $_ := set $metadata "annotations" (merge $scrape ($metadata.annotations | default dict)) }}
{{- end }}
{{- $spec := $template.spec }}
{{- $engine := first $spec.containers }}
{{- $hook := include "vllm-slo.engine" $chart | fromYaml }}
{{- if (($engine.lifecycle).preStop) }}{{ fail (printf "container %s: lifecycle.preStop: the drain hook needs its place; remove it" $engine.name) }}{{ end }}
{{- $_ := set $engine "lifecycle" (merge $hook.lifecycle ($engine.lifecycle | default dict)) }}
{{- $_ := set $engine "livenessProbe" $hook.livenessProbe }}
{{- $_ := set $engine "readinessProbe" $hook.readinessProbe }}
{{- $_ := set $engine "volumeMounts" (concat ($engine.volumeMounts | default list) $hook.volumeMounts) }}
{{- $_ := set $spec "initContainers" (concat (list (include "vllm-slo.sidecar" $chart | fromYaml)) ($spec.initContainers | default list)) }}
{{- $_ := set $spec "volumes" (concat ($spec.volumes | default list) (include "vllm-slo.volumes" $chart | fromYamlArray)) }}
{{- /* The hook's limit, the stop of vLLM, --linger, and 5 s for the last spans. */}}
{{- $stop := $chart.Values.stop }}
{{- $_ := set $spec "terminationGracePeriodSeconds" (add (include "vllm-slo.hookLimit" $chart | int) (int $stop.engine) (int $stop.linger) 5) }}
{{- if not (hasKey $spec "automountServiceAccountToken") }}{{ $_ := set $spec "automountServiceAccountToken" false }}{{ end }}
{{- $_ := set $template "metadata" $metadata }}
{{- toYaml $template }}
{{- end }}

{{- /* What the engine's container gets. Its image needs python3, as vLLM's has. */ -}}
{{- define "vllm-slo.engine" -}}
{{- $url := printf "%s://127.0.0.1:%d" (include "vllm-slo.scheme" .) (int .Values.ports.metrics) -}}
lifecycle:
  preStop:
    exec:
      command: [python3, /etc/vllm-slo-drain/drain.py, {{ include "vllm-slo.hookLimit" . | quote }}, {{ quote $url }}]
# By the state of the engine, not by /health, which an engine that hangs often still serves. Without a sidecar it succeeds: a missing
# one must not restart the engine.
livenessProbe:
  exec: {command: [python3, /etc/vllm-slo-drain/livez.py, {{ quote $url }}]}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  httpGet: {path: /engine/readyz, port: {{ .Values.ports.metrics }}, scheme: {{ include "vllm-slo.scheme" . | upper }}}
  periodSeconds: 5
  timeoutSeconds: 2
  failureThreshold: 3
volumeMounts:
  - {name: vllm-slo-admin, mountPath: /etc/vllm-slo-admin, readOnly: true}
  - {name: vllm-slo-drain, mountPath: /etc/vllm-slo-drain, readOnly: true}
{{- end }}

{{- /* A native sidecar: it starts before the engine, and SIGTERM follows the end of the engine. */ -}}
{{- define "vllm-slo.sidecar" -}}
{{- $scheme := include "vllm-slo.scheme" . | upper -}}
name: sidecar
restartPolicy: Always
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args:
  - sidecar
  - --upstream=http://127.0.0.1:{{ .Values.ports.engine }}
  - --listen=0.0.0.0:{{ .Values.ports.relay }}
  - --metrics=0.0.0.0:{{ .Values.ports.metrics }}
  - --slos=/etc/vllm-slo/slos.yaml
  - --watch-files
  - --admin-token-file=/etc/vllm-slo-admin/token
{{- if .Values.sidecar.requestLogGiB }}
  - --request-log=/var/lib/vllm-slo/requests.jsonl
  - --request-log-total={{ .Values.sidecar.requestLogGiB }}GiB
{{- end }}
  - --state=/var/lib/vllm-slo/config-changes.json
  - --log-format=json
  - --drain-delay={{ .Values.stop.delay }}s
  - --drain={{ .Values.stop.drain }}s
  - --linger={{ .Values.stop.linger }}s
{{- if .Values.metricsTls.secret }}
  - --tls-cert=/etc/vllm-slo-tls/tls.crt
  - --tls-key=/etc/vllm-slo-tls/tls.key
  - --tls-port=metrics
{{- end }}
{{- range .Values.sidecar.args }}
  - {{ quote . }}
{{- end }}
ports:
  - {name: relay, containerPort: {{ .Values.ports.relay }}}
  - {name: metrics, containerPort: {{ .Values.ports.metrics }}}
startupProbe:
  httpGet: {path: /healthz, port: metrics, scheme: {{ $scheme }}}
  periodSeconds: 1
  failureThreshold: 60
# The relay's port, which is closed after a drain: if only the container of vLLM is restarted, as by its own liveness probe, the hook
# has drained the sidecar, and it must be restarted too. Kubernetes stops these probes when it deletes the pod. The failures take at
# least as long as --drain, because a restart aborts open requests.
livenessProbe:
  tcpSocket: {port: relay}
  periodSeconds: 10
  failureThreshold: {{ add 1 (div (add (int .Values.stop.drain) 9) 10) }}
readinessProbe:
  httpGet: {path: /readyz, port: metrics, scheme: {{ $scheme }}}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 1
resources: {{ mergeOverwrite (dict "requests" (dict "ephemeral-storage" (printf "%sGi" (include "vllm-slo.dataGiB" .))) "limits" (dict "ephemeral-storage" (printf "%dGi" (add (include "vllm-slo.dataGiB" . | int) 1)))) .Values.sidecar.resources | toYaml | nindent 2 }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .Values.sidecar.userId }}
  runAsGroup: {{ .Values.sidecar.userId }}
  readOnlyRootFilesystem: true
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL]}
  seccompProfile: {type: RuntimeDefault}
volumeMounts:
  - {name: vllm-slo-slos, mountPath: /etc/vllm-slo, readOnly: true}
  - {name: vllm-slo-admin, mountPath: /etc/vllm-slo-admin, readOnly: true}
  - {name: vllm-slo-data, mountPath: /var/lib/vllm-slo}
{{- if .Values.metricsTls.secret }}
  - {name: vllm-slo-tls, mountPath: /etc/vllm-slo-tls, readOnly: true}
{{- end }}
{{- end }}

{{- define "vllm-slo.volumes" -}}
- name: vllm-slo-slos
  configMap: {name: {{ .Release.Name }}-slos}
- name: vllm-slo-drain
  configMap: {name: {{ .Release.Name }}-drain}
- name: vllm-slo-admin
  secret: {secretName: {{ include "vllm-slo.adminSecret" . }}}
- name: vllm-slo-data
  emptyDir: {sizeLimit: {{ include "vllm-slo.dataGiB" . }}Gi}
{{- with .Values.metricsTls.secret }}
- name: vllm-slo-tls
  secret: {secretName: {{ . }}}
{{- end }}
{{- end }}
