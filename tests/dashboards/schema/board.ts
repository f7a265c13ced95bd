// The type of a dashboard's file, from Grafana's types for dashboards and for each type of panel in use.
import type * as grafana from '@grafana/schema';
import type * as bargauge from '@grafana/schema/dist/esm/raw/composable/bargauge/panelcfg/x/BarGaugePanelCfg_types.gen';
import type * as heatmap from '@grafana/schema/dist/esm/raw/composable/heatmap/panelcfg/x/HeatmapPanelCfg_types.gen';
import type * as logs from '@grafana/schema/dist/esm/raw/composable/logs/panelcfg/x/LogsPanelCfg_types.gen';
import type * as stat from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type * as statetimeline from '@grafana/schema/dist/esm/raw/composable/statetimeline/panelcfg/x/StateTimelinePanelCfg_types.gen';
import type * as table from '@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen';
import type * as text from '@grafana/schema/dist/esm/raw/composable/text/panelcfg/x/TextPanelCfg_types.gen';
import type * as timeseries from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

// JSON has the value of an enum member.
type Plain<T> = 0 extends 1 & T
  ? T // any stays any
  : T extends string
    ? `${T}`
    : T extends number
      ? `${T}` extends `${infer N extends number}` ? N : never
      : T extends object
        ? { [K in keyof T]: Plain<T[K]> }
        : T;

// Grafana adds missing options.
type Some<T> = T extends (infer Each)[] ? Some<Each>[] : T extends object ? { [K in keyof T]?: Some<T[K]> } : T;

type Standard = Omit<grafana.FieldConfig, 'custom'>;

type Property<Custom> =
  | { id: 'custom.hidden'; value: boolean } // hides a column up to Grafana 12.1
  | { [K in keyof Standard & string]-?: { id: K; value?: Plain<Standard[K]> } }[keyof Standard & string]
  | { [K in keyof Custom & string]-?: { id: `custom.${K}`; value?: Some<Plain<Custom[K]>> } }[keyof Custom & string];

type Kind<Type extends string, Options, Custom = object> = Omit<
  Plain<grafana.Panel>, 'type' | 'options' | 'fieldConfig'
> & {
  type: Type;
  options: Some<Plain<Options>>;
  fieldConfig: {
    defaults: Plain<Standard> & { custom?: Some<Plain<Custom>> };
    overrides: { matcher: grafana.MatcherConfig; properties: Property<Custom>[] }[];
  };
};

type Panel =
  | Kind<'bargauge', bargauge.Options>
  | Kind<'heatmap', heatmap.Options, heatmap.FieldConfig>
  | Kind<'logs', logs.Options>
  | Kind<'stat', stat.Options>
  | Kind<'state-timeline', statetimeline.Options, statetimeline.FieldConfig>
  | Kind<'table', table.Options, table.FieldConfig>
  | Omit<Kind<'text', text.Options>, 'fieldConfig'>
  | Kind<'timeseries', timeseries.Options, timeseries.FieldConfig>;

// Fields of the Prometheus data source, which the package does not declare.
type Annotation = Plain<Omit<grafana.AnnotationQuery, 'target'>> & {
  expr: string;
  step: string;
  target: Record<string, unknown>;
  textFormat: string;
  titleFormat: string;
  useValueForTime?: boolean;
};

// `definition` is shown in Grafana's list of variables; the SDK writes the others, which are for intervals, for all.
type Variable = Plain<grafana.VariableModel> & {
  auto?: boolean;
  auto_count?: number;
  auto_min?: string;
  definition?: string;
};

export type Board = Omit<Plain<grafana.Dashboard>, 'panels' | 'annotations' | 'templating'> & {
  panels: (Panel | (Omit<Plain<grafana.RowPanel>, 'panels'> & { panels: Panel[] }))[];
  annotations: { list: Annotation[] };
  templating: { list: Variable[] };
};
