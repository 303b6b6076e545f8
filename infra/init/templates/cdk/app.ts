import {
  App,
  ArnFormat,
  CfnOutput,
  Duration,
  // <sql>
  Fn,
  // </sql>
  RemovalPolicy,
  Stack,
  Tags,
} from "aws-cdk-lib";
import { AccessLogFormat } from "aws-cdk-lib/aws-apigateway";
import { HttpApi, HttpStage, LogGroupLogDestination } from "aws-cdk-lib/aws-apigatewayv2";
import { HttpLambdaIntegration } from "aws-cdk-lib/aws-apigatewayv2-integrations";
import {
  type Alarm,
  ComparisonOperator,
  type CreateAlarmOptions,
  type IMetric,
  MathExpression,
  Metric,
  type MetricOptions,
  TreatMissingData,
} from "aws-cdk-lib/aws-cloudwatch";
import { SnsAction } from "aws-cdk-lib/aws-cloudwatch-actions";
// <dynamodb>
import { AttributeType, BillingMode, Table, TableEncryption } from "aws-cdk-lib/aws-dynamodb";
// </dynamodb>
import { Rule, Schedule } from "aws-cdk-lib/aws-events";
import { LambdaFunction } from "aws-cdk-lib/aws-events-targets";
import {
  // <sql>
  Effect,
  // </sql>
  ManagedPolicy,
  PolicyStatement,
  Role,
  ServicePrincipal,
} from "aws-cdk-lib/aws-iam";
import {
  Architecture,
  // <sql>
  type CfnFunction,
  // </sql>
  Code,
  Function as Lambda,
  Runtime,
  Tracing,
} from "aws-cdk-lib/aws-lambda";
import { SqsDestination } from "aws-cdk-lib/aws-lambda-destinations";
import { SqsEventSource } from "aws-cdk-lib/aws-lambda-event-sources";
import { LogGroup, RetentionDays } from "aws-cdk-lib/aws-logs";
import { Topic } from "aws-cdk-lib/aws-sns";
import { Queue, QueueEncryption, RedrivePermission } from "aws-cdk-lib/aws-sqs";
import { StringParameter } from "aws-cdk-lib/aws-ssm";

const stage = process.env.STAGE ?? "dev";
const name = `my-shop-${stage}`;
const stack = new Stack(new App(), name);
Tags.of(stack).add("service", "my-shop");
Tags.of(stack).add("stage", stage);

/** CloudFormation reads the settings of a deployment from the Parameter Store. */
const setting = (key: string) =>
  StringParameter.valueForStringParameter(stack, `/my-shop/${stage}/${key}`);
// <sql>
const shopSecret = setting("shop-secret");
// </sql>
const tokenSecret = setting("token-secret");

// <dynamodb>
/** Stock, runs and locks. The table outlives its stack. `lockstep migrate --print` shows the same keys. */
const shop = new Table(stack, "Shop", {
  partitionKey: { name: "pk", type: AttributeType.STRING },
  sortKey: { name: "sk", type: AttributeType.STRING },
  billingMode: BillingMode.PAY_PER_REQUEST,
  deletionProtection: true,
  pointInTimeRecoverySpecification: { pointInTimeRecoveryEnabled: true },
  // By the key aws/dynamodb of the account.
  encryption: TableEncryption.AWS_MANAGED,
  removalPolicy: RemovalPolicy.RETAIN,
});

// </dynamodb>
// Queues outlive their stack, with their messages.
const kept = {
  encryption: QueueEncryption.SQS_MANAGED,
  enforceSSL: true,
  removalPolicy: RemovalPolicy.RETAIN,
};
const ofNone = { redrivePermission: RedrivePermission.DENY_ALL };
// The name avoids a circular reference: the queues refer to each other.
const queueName = `${name}-orders`;
const ordersArn = stack.formatArn({ service: "sqs", resource: queueName });
const ordersDead = new Queue(stack, "OrdersDead", {
  ...kept,
  retentionPeriod: Duration.days(14),
  redriveAllowPolicy: {
    redrivePermission: RedrivePermission.BY_QUEUE,
    sourceQueues: [Queue.fromQueueArn(stack, "OrdersByArn", ordersArn)],
  },
});
const orders = new Queue(stack, "Orders", {
  ...kept,
  queueName,
  // Six timeouts of the function.
  visibilityTimeout: Duration.minutes(3),
  // SQS deletes a dead letter by the time of its first sending: its queue keeps it for longer.
  retentionPeriod: Duration.days(10),
  redriveAllowPolicy: ofNone,
  // The maximum. Contention and outages cause deliveries too; the handler itself moves poison messages.
  deadLetterQueue: { queue: ordersDead, maxReceiveCount: 1_000 },
});
const eventsDead = new Queue(stack, "EventsDead", {
  ...kept,
  retentionPeriod: Duration.days(14),
  redriveAllowPolicy: ofNone,
});

const ofFunctions = (service: string, prefix: string) =>
  stack.formatArn({
    service,
    resource: `${prefix}${name}-*`,
    arnFormat: ArnFormat.NO_RESOURCE_NAME,
  });

/** The rights of every function. */
const functionPolicy = new ManagedPolicy(stack, "FunctionPolicy", {
  statements: [
    new PolicyStatement({
      actions: ["logs:CreateLogStream", "logs:PutLogEvents"],
      resources: [ofFunctions("logs", "log-group:/aws/lambda/")],
    }),
    // <dynamodb>
    new PolicyStatement({
      actions: [
        "dynamodb:BatchGetItem",
        "dynamodb:DeleteItem",
        "dynamodb:GetItem",
        "dynamodb:Query",
        "dynamodb:UpdateItem",
      ],
      resources: [shop.tableArn],
    }),
    // </dynamodb>
    // <sql>
    new PolicyStatement({ actions: ["secretsmanager:GetSecretValue"], resources: [shopSecret] }),
    // Lambda creates the network interfaces. These actions do not support resource-level permissions.
    new PolicyStatement({
      actions: [
        "ec2:CreateNetworkInterface",
        "ec2:DescribeNetworkInterfaces",
        "ec2:DescribeSubnets",
        "ec2:DeleteNetworkInterface",
        "ec2:AssignPrivateIpAddresses",
        "ec2:UnassignPrivateIpAddresses",
      ],
      resources: ["*"],
    }),
    // Denies the network to the functions' own code.
    new PolicyStatement({
      effect: Effect.DENY,
      actions: ["ec2:*"],
      resources: ["*"],
      conditions: { ArnLike: { "lambda:SourceFunctionArn": ofFunctions("lambda", "function:") } },
    }),
    // </sql>
  ],
});

interface Settings {
  /** In seconds. */
  readonly timeout: number;
  readonly environment?: Readonly<Record<string, string>>;
  readonly retryAttempts?: number;
  readonly onFailure?: SqsDestination;
}

/** Nothing is reserved: Lambda reserves none of the ten concurrent executions of a new account. */
function lambda(part: string, { timeout, environment, ...settings }: Settings): Lambda {
  const functionName = `${name}-${part}`;
  const lambda = new Lambda(stack, part, {
    functionName,
    runtime: Runtime.NODEJS_24_X,
    architecture: Architecture.ARM_64,
    memorySize: 512,
    handler: "index.handler",
    code: Code.fromAsset(`build/${part}`),
    timeout: Duration.seconds(timeout),
    tracing: Tracing.ACTIVE,
    role: new Role(stack, `${part}-role`, {
      assumedBy: new ServicePrincipal("lambda.amazonaws.com"),
      managedPolicies: [functionPolicy],
    }),
    logGroup: new LogGroup(stack, `${part}-log`, {
      logGroupName: `/aws/lambda/${functionName}`,
      retention: RetentionDays.ONE_MONTH,
      removalPolicy: RemovalPolicy.DESTROY,
    }),
    environment: {
      // <dynamodb>
      TABLE: shop.tableName,
      // </dynamodb>
      // <sql>
      SHOP_SECRET: shopSecret,
      DATABASE: "shop",
      // </sql>
      // <etcd>
      ETCD: setting("etcd"),
      // </etcd>
      LOCKSTEP_SERVICE: name,
      // <sql>
      // Node itself does not trust Amazon's authorities, which sign the certificates of RDS. Lambda has this file.
      NODE_EXTRA_CA_CERTS: "/var/runtime/ca-cert.pem",
      // </sql>
      ...environment,
    },
    ...settings,
  });
  // <sql>
  (lambda.node.defaultChild as CfnFunction).vpcConfig = {
    securityGroupIds: Fn.split(",", setting("security-groups")),
    subnetIds: Fn.split(",", setting("subnets")),
  };
  // </sql>
  return lambda;
}

// API Gateway gives up after 30 s.
const http = lambda("http", { timeout: 29, environment: { TOKEN_SECRET: tokenSecret } });
http.addToRolePolicy(
  new PolicyStatement({ actions: ["secretsmanager:GetSecretValue"], resources: [tokenSecret] }),
);
const api = new HttpApi(stack, "Api", {
  createDefaultStage: false,
  defaultIntegration: new HttpLambdaIntegration("Http", http),
});
const accessLog = {
  request: "$context.requestId",
  ip: "$context.identity.sourceIp",
  method: "$context.httpMethod",
  path: "$context.path",
  status: "$context.status",
  latency: "$context.responseLatency",
  error: "$context.error.message",
};
new HttpStage(stack, "Stage", {
  httpApi: api,
  stageName: "$default",
  autoDeploy: true,
  throttle: { rateLimit: 20, burstLimit: 10 },
  accessLogSettings: {
    destination: new LogGroupLogDestination(
      new LogGroup(stack, "AccessLog", { retention: RetentionDays.ONE_MONTH }),
    ),
    format: AccessLogFormat.custom(JSON.stringify(accessLog)),
  },
});

new CfnOutput(stack, "Url", { value: api.apiEndpoint });
new CfnOutput(stack, "OrdersUrl", { value: orders.queueUrl });

const ordersFunction = lambda("orders", {
  timeout: 30,
  environment: { DEAD_LETTERS: ordersDead.queueArn },
});
ordersDead.grantSendMessages(ordersFunction);
ordersFunction.addEventSource(
  new SqsEventSource(orders, { batchSize: 10, maxConcurrency: 5, reportBatchItemFailures: true }),
);

const schedule = lambda("schedule", {
  timeout: 60,
  retryAttempts: 2,
  onFailure: new SqsDestination(eventsDead),
});
const sweep = lambda("sweep", { timeout: 55, retryAttempts: 0 });
for (const [id, fn, expression] of [
  ["Daily", schedule, "cron(10 0 * * ? *)"],
  ["EachMinute", sweep, "rate(1 minute)"],
] as const) {
  const targets = [new LambdaFunction(fn)];
  new Rule(stack, id, { schedule: Schedule.expression(expression), targets });
}

// <sql>
// Invoke it after each deployment.
lambda("migrate", { timeout: 120 });

// </sql>
const topic = Topic.fromTopicArn(stack, "Alarms", setting("alarm-topic"));

/** Notifies of a metric that is above 0 for three periods. */
function alarm(id: string, metric: IMetric, options: Partial<CreateAlarmOptions> = {}): Alarm {
  const alarm = (metric as Metric).createAlarm(stack, id, {
    evaluationPeriods: 3,
    threshold: 0,
    comparisonOperator: ComparisonOperator.GREATER_THAN_THRESHOLD,
    treatMissingData: TreatMissingData.NOT_BREACHING,
    ...options,
  });
  alarm.addAlarmAction(new SnsAction(topic));
  return alarm;
}

const most: MetricOptions = { period: Duration.minutes(1), statistic: "Maximum" };
const sum: MetricOptions = { period: Duration.minutes(1), statistic: "Sum" };

for (const [id, queue] of Object.entries({ OrdersDead: ordersDead, EventsDead: eventsDead })) {
  const metric = queue.metricApproximateNumberOfMessagesVisible(most);
  alarm(`${id}HasSome`, metric, { evaluationPeriods: 1 });
}
alarm("OrdersAreLate", orders.metricApproximateAgeOfOldestMessage(most), {
  evaluationPeriods: 5,
  threshold: 900,
});
// The age ignores messages received more than three times. In an outage this is soon every message.
const fiveMinutes: MetricOptions = { period: Duration.minutes(5), statistic: "Sum" };
const stuck = new MathExpression({
  expression: "IF(received > 0 AND FILL(done, 0) == 0, 1, 0)",
  usingMetrics: {
    received: orders.metricNumberOfMessagesReceived(fiveMinutes),
    done: orders.metricNumberOfMessagesDeleted(fiveMinutes),
  },
  period: Duration.minutes(5),
});
alarm("OrdersAreStuck", stuck);
for (const [id, fn] of Object.entries({ http, orders: ordersFunction, schedule, sweep })) {
  // The schedule runs once a day.
  alarm(`${id}-fails`, fn.metricErrors(sum), fn === schedule ? { evaluationPeriods: 1 } : {});
}
alarm("OrdersAreThrottled", ordersFunction.metricThrottles(sum));
// Without a sweep, parked runs wait for ever.
alarm("SweepDoesNotRun", sweep.metricInvocations(sum), {
  evaluationPeriods: 5,
  threshold: 1,
  comparisonOperator: ComparisonOperator.LESS_THAN_THRESHOLD,
  treatMissingData: TreatMissingData.BREACHING,
});
// A problem response is not an error of the function, not even in an outage of the stores.
const dimensionsMap = { ApiId: api.apiId };
const serverErrors = { namespace: "AWS/ApiGateway", metricName: "5xx", dimensionsMap };
alarm("HttpIsUnavailable", new Metric({ ...serverErrors, ...sum }));
// The fences make both harmless. Many of them say that locks expire while work is done.
for (const [id, metricName] of Object.entries({
  LocksAreLost: "lockstep.lock.lost",
  WritesAreFencedOut: "lockstep.fenced_out",
})) {
  const ours = { namespace: "Lockstep", metricName, dimensionsMap: { service: name } };
  alarm(id, new Metric({ ...ours, ...sum }));
}
