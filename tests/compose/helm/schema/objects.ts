// The custom resources of the manifests by kind, as their operators publish them. TypeScript refuses unknown fields in literals.
import type { IApplication } from "@kubernetes-models/argo-cd/argoproj.io/v1alpha1/Application";
import type { IRollout } from "@kubernetes-models/argo-rollouts/argoproj.io/v1alpha1/Rollout";
import type { IHelmRelease } from "@kubernetes-models/flux-cd/helm.toolkit.fluxcd.io/v2/HelmRelease";
import type { IGitRepository } from "@kubernetes-models/flux-cd/source.toolkit.fluxcd.io/v1/GitRepository";
import type { IGrafanaDashboard } from "@kubernetes-models/grafana-operator/grafana.integreatly.org/v1beta1/GrafanaDashboard";
import type { IScaledObject } from "@kubernetes-models/keda/keda.sh/v1alpha1/ScaledObject";
import type { IAlertmanagerConfig } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1alpha1/AlertmanagerConfig";
import type { IPodMonitor } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PodMonitor";
import type { IPrometheusRule } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PrometheusRule";

export interface CustomResources {
  AlertmanagerConfig: IAlertmanagerConfig;
  Application: IApplication;
  GitRepository: IGitRepository;
  GrafanaDashboard: IGrafanaDashboard;
  HelmRelease: IHelmRelease;
  PodMonitor: IPodMonitor;
  PrometheusRule: IPrometheusRule;
  Rollout: IRollout;
  ScaledObject: IScaledObject;
}
