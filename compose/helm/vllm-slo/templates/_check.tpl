{{- /* What values require of each other; values.schema.json has what each of them must be. All mistakes in one message. */ -}}
{{- define "vllm-slo.check" -}}
{{- $wrong := list }}
{{- $rendered := "add -f chart-values/values.yaml, which `vllm-slo deploy render --slos FILE --out chart-values` writes" }}
{{- if not .Values.slos }}{{ $wrong = append $wrong (printf "slos: empty, but the sidecar needs the SLO file; %s" $rendered) }}{{ end }}
{{- if and .Values.prometheusRule.enabled (not .Values.rules) }}{{ $wrong = append $wrong (printf "prometheusRule.enabled: there are no rules; %s" $rendered) }}{{ end }}
{{- if and .Values.dashboards.enabled (not .Values.boards) }}{{ $wrong = append $wrong (printf "dashboards.enabled: there are no boards; %s" $rendered) }}{{ end }}
{{- if and .Values.dashboards.grafanaOperator.enabled (not .Values.dashboards.enabled) }}{{ $wrong = append $wrong "dashboards.grafanaOperator.enabled: a GrafanaDashboard reads the ConfigMap of a dashboard; enable dashboards" }}{{ end }}
{{- if and .Values.podMonitor.enabled .Values.scrapeAnnotations.enabled }}{{ $wrong = append $wrong "scrapeAnnotations.enabled: each sidecar would be scraped twice; disable podMonitor" }}{{ end }}
{{- if ne 3 (len (uniq (list (int .Values.ports.engine) (int .Values.ports.relay) (int .Values.ports.metrics)))) }}{{ $wrong = append $wrong "ports: engine, relay and metrics share the address of the pod; use three different ports" }}{{ end }}
{{- if and .Values.autoscaling.enabled (eq .Values.workload.kind "none") }}{{ $wrong = append $wrong "autoscaling.enabled: workload.kind is none, so there is nothing to scale; write a ScaledObject for your own workload" }}{{ end }}
{{- if gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas) }}{{ $wrong = append $wrong (printf "autoscaling.minReplicas: %d is above maxReplicas, %d" (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) }}{{ end }}
{{- $interval := 0 }}
{{- if regexMatch "^[0-9]+s$" .Values.scrape.interval }}{{ $interval = trimSuffix "s" .Values.scrape.interval | int }}{{ end }}
{{- if regexMatch "^[0-9]+m$" .Values.scrape.interval }}{{ $interval = trimSuffix "m" .Values.scrape.interval | int | mul 60 }}{{ end }}
{{- if le (int .Values.stop.linger) (int $interval) }}{{ $wrong = append $wrong (printf "stop.linger: %d s is not longer than the scrape interval, %s, so the final counts may be lost; use %d or more" (int .Values.stop.linger) .Values.scrape.interval (add $interval 2)) }}{{ end }}
{{- if lt (int .Values.stop.delay) 5 }}{{ $wrong = append $wrong (printf "stop.delay: %d s is shorter than the readiness probe takes to fail, 4 s, and load balancers need time too; use 5 or more" (int .Values.stop.delay)) }}{{ end }}
{{- range .Values.sidecar.args }}
{{- $flag := first (splitList "=" .) }}
{{- if has $flag (list "--upstream" "--listen" "--metrics" "--slos" "--watch-files" "--admin-token-file" "--request-log" "--request-log-total" "--state" "--drain-delay" "--drain" "--linger" "--tls-cert" "--tls-key" "--tls-port") }}{{ $wrong = append $wrong (printf "sidecar.args: %s is set by the chart; use the value for it (ports, stop, metricsTls, sidecar.requestLogGiB)" $flag) }}{{ end }}
{{- end }}
{{- if $wrong }}{{ fail (printf "\n\n%s\n" (join "\n" $wrong)) }}{{ end }}
{{- end }}
