import type { Resource, Template } from "./cloudformation.ts";

// biome-ignore lint/suspicious/noExplicitAny: any part of a template
type Json = any;

/**
 * Makes the plain resources that SAM's transform makes of its own. Only what our template uses is known here; anything else
 * is an error.
 */
export function withoutSam({
  Globals,
  Resources,
}: Template & { readonly Globals: Json }): Template {
  const expanded = Object.entries(Resources).flatMap(([id, resource]) => {
    if (!resource.Type.startsWith("AWS::Serverless::")) return [[id, resource] as const];
    if (resource.Type === "AWS::Serverless::Function") return functionOf(id, resource, Globals);
    if (resource.Type === "AWS::Serverless::HttpApi") return apiOf(id, resource.Properties);
    throw new Error(`${id} has the unknown type ${resource.Type}`);
  });
  return { Resources: Object.fromEntries(expanded) };
}

type Entry = readonly [string, Resource];

function functionOf(id: string, { Properties }: Resource, Globals: Json): readonly Entry[] {
  const { Events = {}, EventInvokeConfig, CodeUri: _, Environment, Tracing, ...own } = Properties;
  const { Environment: shared, Tracing: mode, Tags, ...globals } = Globals.Function;
  const Ref = { Ref: id };
  const fn = {
    ...globals,
    ...own,
    Tags: Object.entries(Tags).map(([Key, Value]) => ({ Key, Value })),
    TracingConfig: { Mode: Tracing ?? mode },
    Environment: { Variables: { ...shared.Variables, ...Environment?.Variables } },
  };
  const events = Object.entries<Json>(Events).flatMap(([name, event]) => eventOf(id, name, event));
  const { OnFailure } = EventInvokeConfig?.DestinationConfig ?? {};
  const invocation = {
    ...EventInvokeConfig,
    FunctionName: Ref,
    ...(OnFailure && { DestinationConfig: { OnFailure } }),
  };
  return [
    [id, { Type: "AWS::Lambda::Function", Properties: fn }],
    ...events,
    ...(EventInvokeConfig
      ? [entry(`${id}Async`, "AWS::Lambda::EventInvokeConfig", invocation)]
      : []),
  ];
}

function eventOf(id: string, name: string, { Type, Properties }: Json): readonly Entry[] {
  const FunctionName = { Ref: id };
  if (Type === "HttpApi") return [];
  if (Type === "SQS") {
    const { Queue: EventSourceArn, ...source } = Properties;
    const mapping = { ...source, EventSourceArn, FunctionName };
    return [entry(id + name, "AWS::Lambda::EventSourceMapping", mapping)];
  }
  if (Type === "Schedule") {
    const Targets = [{ Arn: { "Fn::GetAtt": [id, "Arn"] } }];
    const rule = { ScheduleExpression: Properties.Schedule, Targets };
    return [entry(id + name, "AWS::Events::Rule", rule)];
  }
  throw new Error(`${id} has the unknown event ${Type}`);
}

function apiOf(id: string, Properties: Json): readonly Entry[] {
  return [
    entry(id, "AWS::ApiGatewayV2::Api", {}),
    entry(`${id}Stage`, "AWS::ApiGatewayV2::Stage", { ApiId: { Ref: id }, ...Properties }),
  ];
}

function entry(id: string, Type: string, Properties: Json): Entry {
  return [id, { Type, Properties }];
}
