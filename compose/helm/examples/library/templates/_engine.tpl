{{- /* The pod of an engine as you have it, without the sidecar: the engine is the first container. */ -}}
{{- define "engines.pod" -}}
spec:
  containers:
    - name: {{ . }}
      image: vllm/vllm-openai:v0.33.0
      args: [--model=Qwen/Qwen3-8B, --host=0.0.0.0, --port=8000]
      resources: {limits: {nvidia.com/gpu: "8"}}
      startupProbe:
        httpGet: {path: /health, port: 8000}
        periodSeconds: 5
        failureThreshold: 240
{{- end }}
