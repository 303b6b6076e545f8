import type {
  Alarm,
  DeployedFunction,
  DeployedQueue,
  DeployedTable,
  Deployment,
  LogGroup,
  Mapping,
  Schedule,
  Stage,
  Statement,
} from "./deployment.ts";

export interface Template {
  readonly Resources: Readonly<Record<string, Resource>>;
}

export interface Resource {
  readonly Type: string;
  readonly DeletionPolicy?: string;
  readonly UpdateReplacePolicy?: string;
  // biome-ignore lint/suspicious/noExplicitAny: any property of any resource
  readonly Properties: any;
}

/** Reads what a template of CloudFormation deploys. */
export function fromCloudFormation({ Resources }: Template): Deployment {
  const ofType = (type: string) =>
    Object.entries(Resources).filter(([, resource]) => resource.Type === type);
  const propertiesOf = (type: string) => ofType(type).map(([, { Properties }]) => Properties);
  return {
    functions: ofType("AWS::Lambda::Function").map(([id, { Properties }]) =>
      functionOf(id, Properties, Resources),
    ),
    queues: ofType("AWS::SQS::Queue").map(([id, resource]) => queueOf(id, resource, Resources)),
    tables: ofType("AWS::DynamoDB::Table").map(([id, resource]) => tableOf(id, resource)),
    mappings: propertiesOf("AWS::Lambda::EventSourceMapping").map(mappingOf),
    schedules: propertiesOf("AWS::Events::Rule").map(scheduleOf),
    stages: propertiesOf("AWS::ApiGatewayV2::Stage").map(stageOf),
    logGroups: ofType("AWS::Logs::LogGroup").map(([id, { Properties }]) =>
      logGroupOf(id, Properties),
    ),
    alarms: propertiesOf("AWS::CloudWatch::Alarm").map(alarmOf),
  };
}

// biome-ignore lint/suspicious/noExplicitAny: any part of a template
type Json = any;

/** The id that a reference names, else the text: of a Fn::Sub or a Fn::Join with its ids in ${}. */
function named(value: Json): string {
  if (typeof value !== "object" || value === null) return String(value ?? "");
  if (value.Ref) return value.Ref;
  if (value["Fn::GetAtt"]) return [value["Fn::GetAtt"]].flat()[0].split(".")[0];
  if (value["Fn::Sub"]) return [value["Fn::Sub"]].flat()[0];
  if (value["Fn::Join"]) {
    const [separator, parts] = value["Fn::Join"];
    const texts = parts.map((part: Json) =>
      typeof part === "string" ? part : `\${${named(part)}}`,
    );
    return texts.join(separator);
  }
  return JSON.stringify(value);
}

const list = (value: Json): readonly Json[] => (value === undefined ? [] : [value].flat());

function functionOf(id: string, fn: Json, resources: Template["Resources"]): DeployedFunction {
  const role = named(fn.Role);
  const async = Object.values(resources).find(
    ({ Type, Properties }) =>
      Type === "AWS::Lambda::EventInvokeConfig" && named(Properties.FunctionName) === id,
  )?.Properties;
  return {
    id,
    name: named(fn.FunctionName),
    runtime: fn.Runtime,
    timeout: fn.Timeout,
    reserved: fn.ReservedConcurrentExecutions,
    isInNetwork: list(fn.VpcConfig?.SecurityGroupIds).length > 0 && Boolean(fn.VpcConfig.SubnetIds),
    isTraced: fn.TracingConfig?.Mode === "Active",
    isTagged: isTagged(fn.Tags),
    environment: Object.fromEntries(
      Object.entries(fn.Environment?.Variables ?? {}).map(([name, value]) => [name, named(value)]),
    ),
    role,
    statements: statementsOf(role, resources),
    retries: async?.MaximumRetryAttempts,
    onFailure:
      async?.DestinationConfig?.OnFailure && named(async.DestinationConfig.OnFailure.Destination),
  };
}

/** The statements in the role, in managed policies of the template, and in policies that name the role. */
function statementsOf(role: string, resources: Template["Resources"]): readonly Statement[] {
  const { Policies = [], ManagedPolicyArns = [] } = resources[role]?.Properties ?? {};
  const managed = ManagedPolicyArns.map((one: Json) => resources[named(one)]?.Properties);
  if (managed.includes(undefined))
    throw new Error(`${role} has a policy from outside the template`);
  const attached = Object.values(resources)
    .filter(({ Type }) => Type === "AWS::IAM::Policy")
    .map(({ Properties }) => Properties)
    .filter(({ Roles }) => list(Roles).some((one) => named(one) === role));
  return [...Policies, ...managed, ...attached].flatMap(({ PolicyDocument }: Json) =>
    list(PolicyDocument.Statement).map(({ Effect, Action, Resource }) => ({
      effect: Effect,
      actions: list(Action),
      resources: list(Resource).map(named),
    })),
  );
}

function queueOf(
  id: string,
  { Properties: queue, ...resource }: Resource,
  resources: Template["Resources"],
): DeployedQueue {
  const { RedrivePolicy: redrive, RedriveAllowPolicy: allowed } = queue;
  const policies = Object.values(resources).filter(
    ({ Type, Properties }) =>
      Type === "AWS::SQS::QueuePolicy" && list(Properties.Queues).some((one) => named(one) === id),
  );
  return {
    id,
    visibility: queue.VisibilityTimeout ?? 30,
    retention: queue.MessageRetentionPeriod ?? 345_600,
    isEncrypted: queue.SqsManagedSseEnabled === true,
    isRetained: isRetained(resource),
    isTagged: isTagged(queue.Tags),
    isTlsOnly: policies.some(({ Properties }) =>
      Properties.PolicyDocument.Statement.some(deniesPlainText),
    ),
    redrive: redrive && { to: named(redrive.deadLetterTargetArn), after: redrive.maxReceiveCount },
    redriveFrom:
      allowed && list(allowed.sourceQueueArns).map((arn) => queueByName(named(arn), resources)),
  };
}

function tableOf(id: string, { Properties: table, ...resource }: Resource): DeployedTable {
  const { BillingMode, AttributeDefinitions, KeySchema } = table;
  return {
    id,
    definition: { BillingMode, AttributeDefinitions, KeySchema },
    isRecoverable: table.PointInTimeRecoverySpecification?.PointInTimeRecoveryEnabled === true,
    isProtected: table.DeletionProtectionEnabled === true,
    isEncrypted: table.SSESpecification?.SSEEnabled === true,
    isRetained: isRetained(resource),
    isTagged: isTagged(table.Tags),
  };
}

function isRetained({ DeletionPolicy, UpdateReplacePolicy }: Omit<Resource, "Properties">) {
  return DeletionPolicy === "Retain" && UpdateReplacePolicy === "Retain";
}

function deniesPlainText({ Effect, Action, Condition }: Json): boolean {
  const isPlain = Condition?.Bool?.["aws:SecureTransport"] === "false";
  return Effect === "Deny" && Action === "sqs:*" && isPlain;
}

/** A queue cannot refer to the queue that refers to it: the ARN has its name. */
function queueByName(arn: string, resources: Template["Resources"]): string {
  const [id] =
    Object.entries(resources).find(
      ([, { Type, Properties }]) =>
        Type === "AWS::SQS::Queue" &&
        Properties.QueueName !== undefined &&
        arn.endsWith(`:${named(Properties.QueueName)}`),
    ) ?? [];
  return id ?? arn;
}

function mappingOf(source: Json): Mapping {
  return {
    queue: named(source.EventSourceArn),
    function: named(source.FunctionName),
    batchSize: source.BatchSize,
    window: source.MaximumBatchingWindowInSeconds ?? 0,
    concurrency: source.ScalingConfig?.MaximumConcurrency,
    reportsFailures: list(source.FunctionResponseTypes).includes("ReportBatchItemFailures"),
  };
}

function scheduleOf({ ScheduleExpression: expression, Targets }: Json): Schedule {
  return { expression, function: named(Targets[0].Arn) };
}

function stageOf({ ApiId, DefaultRouteSettings: route, AccessLogSettings: log }: Json): Stage {
  return {
    api: named(ApiId),
    rate: route?.ThrottlingRateLimit,
    burst: route?.ThrottlingBurstLimit,
    log: log && named(log.DestinationArn),
  };
}

function logGroupOf(id: string, { LogGroupName, RetentionInDays: days }: Json): LogGroup {
  return { id, name: named(LogGroupName), days };
}

function alarmOf(alarm: Json): Alarm {
  const { MetricName, Namespace, Dimensions } = alarm;
  const single = { MetricName, Namespace, Dimensions };
  const metrics: readonly Json[] = alarm.Metrics
    ? alarm.Metrics.flatMap((one: Json) => one.MetricStat?.Metric ?? [])
    : [single];
  return {
    namespace: metrics[0].Namespace,
    metrics: metrics.map((one) => one.MetricName),
    dimensions: Object.fromEntries(
      list(metrics[0].Dimensions).map(({ Name, Value }) => [Name, named(Value)]),
    ),
    comparison: alarm.ComparisonOperator,
    threshold: alarm.Threshold,
    periods: alarm.EvaluationPeriods,
    missing: alarm.TreatMissingData,
    isNotified: list(alarm.AlarmActions).length === 1,
  };
}

function isTagged(tags: Json): boolean {
  const keys = Array.isArray(tags) ? tags.map(({ Key }) => Key) : Object.keys(tags ?? {});
  return ["service", "stage"].every((key) => keys.includes(key));
}
