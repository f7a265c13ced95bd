{{- /* The pod of vLLM, without the sidecar. */ -}}
{{- define "vllm-slo.vllm" -}}
{{- $volumes := list (dict "name" "shm" "emptyDir" (dict "medium" "Memory" "sizeLimit" .Values.engine.sharedMemory)) }}
{{- $mounts := list (dict "name" "shm" "mountPath" "/dev/shm") }}
{{- with .Values.engine.cache }}
{{- $volumes = append $volumes (merge (dict "name" "cache") .) }}
{{- $mounts = append $mounts (dict "name" "cache" "mountPath" "/var/cache/vllm") }}
{{- end }}
spec:
  {{- with omit .Values.workload.pod "volumes" }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{ toYaml . | nindent 4 }}
  {{- end }}
  enableServiceLinks: false   # VLLM_* variables of a Service named vllm would configure vLLM
  securityContext:
    runAsNonRoot: true
    runAsUser: {{ .Values.engine.userId }}
    runAsGroup: {{ .Values.engine.userId }}
    fsGroup: {{ .Values.engine.userId }}
    seccompProfile: {type: RuntimeDefault}
  containers:
    - name: vllm
      image: {{ .Values.engine.image }}
      args:
        - --model={{ .Values.engine.model }}
        - --host=0.0.0.0
        - --port={{ .Values.ports.engine }}
        - --enable-prompt-tokens-details   # cached tokens of each request
        - --enable-per-request-metrics     # queue time, prefill and decode of each request
        {{- range .Values.engine.args }}
        - {{ quote . }}
        {{- end }}
      env:
        - {name: HOME, value: /var/cache/vllm}   # models and compiled kernels
        - {name: USER, value: vllm}              # the user id has no entry in /etc/passwd
        {{- with .Values.engine.huggingFaceSecret }}
        - name: HF_TOKEN
          valueFrom: {secretKeyRef: {name: {{ . }}, key: token, optional: true}}
        {{- end }}
        {{- with .Values.engine.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - {name: engine, containerPort: {{ .Values.ports.engine }}}
      startupProbe:
        httpGet: {path: /health, port: engine}
        periodSeconds: 5
        failureThreshold: {{ mul (int .Values.engine.startMinutes) 12 }}
      resources: {{ toYaml .Values.engine.resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        capabilities: {drop: [ALL]}
      volumeMounts: {{ concat $mounts .Values.engine.volumeMounts | toYaml | nindent 8 }}
  volumes: {{ concat $volumes (.Values.workload.pod.volumes | default list) | toYaml | nindent 4 }}
{{- end }}
