// Validates custom resources, a JSON list on standard input, by the schemas that their operators publish: values and required fields.
import { Application } from "@kubernetes-models/argo-cd/argoproj.io/v1alpha1/Application";
import { Rollout } from "@kubernetes-models/argo-rollouts/argoproj.io/v1alpha1/Rollout";
import { HelmRelease } from "@kubernetes-models/flux-cd/helm.toolkit.fluxcd.io/v2/HelmRelease";
import { GitRepository } from "@kubernetes-models/flux-cd/source.toolkit.fluxcd.io/v1/GitRepository";
import { GrafanaDashboard } from "@kubernetes-models/grafana-operator/grafana.integreatly.org/v1beta1/GrafanaDashboard";
import { ScaledObject } from "@kubernetes-models/keda/keda.sh/v1alpha1/ScaledObject";
import { AlertmanagerConfig } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1alpha1/AlertmanagerConfig";
import { PodMonitor } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PodMonitor";
import { PrometheusRule } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PrometheusRule";
import { readFileSync } from "node:fs";

const models = {
  AlertmanagerConfig, Application, GitRepository, GrafanaDashboard, HelmRelease, PodMonitor, PrometheusRule, Rollout, ScaledObject,
};
const errors = JSON.parse(readFileSync(0, "utf8")).map((object) => {
  try {
    new models[object.kind](object).validate();
    return "";
  } catch (error) {
    return error.message;
  }
});
console.log(JSON.stringify(errors));
