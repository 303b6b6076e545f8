import type {
  Alarm,
  DeployedFunction,
  DeployedQueue,
  DeployedTable,
  Deployment,
  Statement,
} from "./deployment.ts";

// biome-ignore lint/suspicious/noExplicitAny: any part of a file of Terraform
type Json = any;

type ParseHcl = (text: string) => Promise<unknown>;

/** Reads what a file of Terraform deploys. */
export async function fromTerraform(text: string, parseHcl: ParseHcl): Promise<Deployment> {
  const file = new Configuration(await parseHcl(text), parseHcl);
  const mappings = file.of("aws_lambda_event_source_mapping");
  const rules = new Map(
    file.of("aws_cloudwatch_event_rule").map(({ id, body }) => [id, body.schedule_expression]),
  );
  return {
    functions: file.of("aws_lambda_function").map((one) => functionOf(file, one)),
    queues: await Promise.all(file.of("aws_sqs_queue").map((one) => queueOf(file, one))),
    tables: file.of("aws_dynamodb_table").map((one) => tableOf(file, one)),
    mappings: mappings.map(({ body }) => ({
      queue: named(body.event_source_arn),
      function: named(body.function_name),
      batchSize: body.batch_size,
      window: body.maximum_batching_window_in_seconds ?? 0,
      concurrency: body.scaling_config?.[0].maximum_concurrency,
      reportsFailures: list(body.function_response_types).includes("ReportBatchItemFailures"),
    })),
    schedules: file.of("aws_cloudwatch_event_target").map(({ body }) => ({
      function: named(body.arn),
      expression: rules.get(named(body.rule)),
    })),
    stages: file.of("aws_apigatewayv2_stage").map(({ body }) => ({
      api: named(body.api_id),
      rate: body.default_route_settings?.[0].throttling_rate_limit,
      burst: body.default_route_settings?.[0].throttling_burst_limit,
      log: body.access_log_settings && named(body.access_log_settings[0].destination_arn),
    })),
    logGroups: file.of("aws_cloudwatch_log_group").map(({ id, body }) => ({
      id,
      name: body.name,
      days: body.retention_in_days,
    })),
    alarms: file.of("aws_cloudwatch_metric_alarm").map(({ body }) => alarmOf(file, body)),
  };
}

interface Block {
  readonly id: string;
  readonly body: Json;
}

/** The blocks of a file, one for each key of a `for_each` over a local map. */
class Configuration {
  readonly #file: Json;
  readonly #parse: ParseHcl;
  readonly #locals: Readonly<Record<string, Json>>;

  constructor(file: Json, parse: ParseHcl) {
    this.#file = file;
    this.#parse = parse;
    this.#locals = Object.assign({}, ...file.locals);
  }

  of(type: string): readonly Block[] {
    return this.#blocks(this.#file.resource[type], type);
  }

  data(type: string): readonly Block[] {
    return this.#blocks(this.#file.data[type], `data.${type}`);
  }

  /** The value of a local, or the value itself. */
  local(value: Json): Json {
    const [, name] = /^\$\{local\.(\w+)\}$/.exec(String(value)) ?? [];
    return name === undefined ? value : this.#locals[name];
  }

  /** The object in a call of `jsonencode`. */
  async encoded(value: string): Promise<Json> {
    const [, inner] = /^\$\{jsonencode\((.*)\)\}$/s.exec(value) ?? [];
    return ((await this.#parse(`value = ${inner}`)) as Json).value;
  }

  get hasDefaultTags(): boolean {
    const tags = this.#file.provider.aws[0].default_tags?.[0].tags ?? {};
    return "service" in tags && "stage" in tags;
  }

  #blocks(blocks: Json = {}, type: string): readonly Block[] {
    return Object.entries<Json>(blocks).flatMap(([name, [body]]) => {
      const id = `${type}.${name}`;
      if (body.for_each === undefined) return [{ id, body }];
      return Object.entries<Json>(this.local(body.for_each)).map(([key, value]) => ({
        id: `${id}[${JSON.stringify(key)}]`,
        body: withEach(body, key, value),
      }));
    });
  }
}

/** Replaces `each.key` and `each.value.NAME` in all texts. */
function withEach(body: Json, key: string, value: Json): Json {
  if (typeof body === "string") {
    const [, whole] = /^\$\{each\.value\.(\w+)\}$/.exec(body) ?? [];
    if (whole !== undefined) return value[whole];
    return body
      .replaceAll(/\$\{each\.key\}/g, key)
      .replaceAll(/\beach\.key\b/g, JSON.stringify(key))
      .replaceAll(/\beach\.value\.(\w+)/g, (_, name) => JSON.stringify(value[name]));
  }
  if (Array.isArray(body)) return body.map((one) => withEach(one, key, value));
  if (typeof body !== "object" || body === null) return body;
  return Object.fromEntries(
    Object.entries(body).map(([name, one]) => [name, withEach(one, key, value)]),
  );
}

/** The block that an expression refers to by an attribute, else the text. */
function named(value: Json): string {
  const reference = /^\$\{((?:data\.)?aws_\w+\.\w+(?:\["[\w-]+"\])?)\.\w+\}$/;
  const [, id] = reference.exec(String(value)) ?? [];
  return id ?? String(value);
}

const list = (value: Json): readonly Json[] => (value === undefined ? [] : [value].flat());

function functionOf(file: Configuration, { id, body }: Block): DeployedFunction {
  const { async, role } = {
    async: file
      .of("aws_lambda_function_event_invoke_config")
      .find((one) => named(one.body.function_name) === id)?.body,
    role: named(body.role),
  };
  const onFailure = async?.destination_config?.[0].on_failure[0].destination;
  const [network] = body.vpc_config ?? [];
  return {
    id,
    name: body.function_name,
    runtime: body.runtime,
    timeout: body.timeout,
    reserved: body.reserved_concurrent_executions,
    isInNetwork: Boolean(network?.security_group_ids && network.subnet_ids),
    isTraced: body.tracing_config?.[0].mode === "Active",
    isTagged: file.hasDefaultTags,
    environment: Object.fromEntries(
      Object.entries(body.environment[0].variables).map(([name, value]) => [name, named(value)]),
    ),
    role,
    statements: file
      .of("aws_iam_role_policy")
      .filter((one) => named(one.body.role) === role)
      .flatMap((one) => statementsOf(file, named(one.body.policy))),
    retries: async?.maximum_retry_attempts,
    onFailure: onFailure && named(onFailure),
  };
}

function statementsOf(file: Configuration, id: string): readonly Statement[] {
  const document = file.data("aws_iam_policy_document").find((one) => one.id === id);
  if (!document) throw new Error(`there is no policy ${id}`);
  return document.body.statement.map(({ effect = "Allow", actions, resources }: Json) => ({
    effect,
    actions,
    resources: list(resources).map(named),
  }));
}

async function queueOf(file: Configuration, { id, body }: Block): Promise<DeployedQueue> {
  const about = (type: string) =>
    file.of(type).find((one) => named(one.body.queue_url) === id)?.body;
  const redrive = about("aws_sqs_queue_redrive_policy");
  const allowed = about("aws_sqs_queue_redrive_allow_policy");
  const policy = about("aws_sqs_queue_policy");
  const { deadLetterTargetArn, maxReceiveCount } = redrive
    ? await file.encoded(redrive.redrive_policy)
    : {};
  const sources = allowed && (await file.encoded(allowed.redrive_allow_policy)).sourceQueueArns;
  return {
    id,
    visibility: body.visibility_timeout_seconds,
    retention: body.message_retention_seconds,
    isEncrypted: body.sqs_managed_sse_enabled === true,
    isRetained: body.lifecycle?.[0].prevent_destroy === true,
    isTagged: file.hasDefaultTags,
    isTlsOnly: policy !== undefined && deniesPlainText(file, named(policy.policy)),
    redrive: redrive && { to: named(deadLetterTargetArn), after: maxReceiveCount },
    redriveFrom: allowed && list(sources).map(named),
  };
}

function tableOf(file: Configuration, { id, body }: Block): DeployedTable {
  return {
    id,
    definition: {
      BillingMode: body.billing_mode,
      AttributeDefinitions: list(body.attribute).map(({ name, type }) => ({
        AttributeName: name,
        AttributeType: type,
      })),
      KeySchema: [
        { AttributeName: body.hash_key, KeyType: "HASH" },
        { AttributeName: body.range_key, KeyType: "RANGE" },
      ],
    },
    isRecoverable: body.point_in_time_recovery?.[0].enabled === true,
    isProtected: body.deletion_protection_enabled === true,
    isEncrypted: body.server_side_encryption?.[0].enabled === true,
    isRetained: body.lifecycle?.[0].prevent_destroy === true,
    isTagged: file.hasDefaultTags,
  };
}

function deniesPlainText(file: Configuration, id: string): boolean {
  const document = file.data("aws_iam_policy_document").find((one) => one.id === id);
  const [statement] = document?.body.statement ?? [];
  const { variable, values } = statement?.condition?.[0] ?? {};
  const isPlain = variable === "aws:SecureTransport" && String(values) === "false";
  return statement?.effect === "Deny" && String(statement.actions) === "sqs:*" && isPlain;
}

function alarmOf(file: Configuration, body: Json): Alarm {
  const metrics: readonly Json[] = body.metric_query
    ? body.metric_query.flatMap((one: Json) => one.metric ?? [])
    : [body];
  return {
    namespace: metrics[0].namespace,
    metrics: metrics.map((one) => one.metric_name),
    dimensions: Object.fromEntries(
      Object.entries(metrics[0].dimensions).map(([name, value]) => [name, named(value)]),
    ),
    comparison: body.comparison_operator,
    threshold: body.threshold,
    periods: body.evaluation_periods,
    missing: body.treat_missing_data,
    isNotified: list(file.local(body.alarm_actions)).length === 1,
  };
}
