/**
 * What a deployment on AWS consists of, whichever tool describes it. Resources refer to each other by the ids that their
 * description gives them.
 */
export interface Deployment {
  readonly functions: readonly DeployedFunction[];
  readonly queues: readonly DeployedQueue[];
  readonly tables: readonly DeployedTable[];
  readonly mappings: readonly Mapping[];
  readonly schedules: readonly Schedule[];
  readonly stages: readonly Stage[];
  readonly logGroups: readonly LogGroup[];
  readonly alarms: readonly Alarm[];
}

export interface DeployedFunction {
  readonly id: string;

  /** The name, as far as the description decides it. */
  readonly name: string;
  readonly runtime: string;
  readonly timeout: number;
  readonly reserved: number | undefined;
  readonly isInNetwork: boolean;
  readonly isTraced: boolean;
  readonly isTagged: boolean;
  readonly environment: Readonly<Record<string, unknown>>;

  /** The id of the role. */
  readonly role: string;
  readonly statements: readonly Statement[];

  /** Of asynchronous events. */
  readonly retries: number | undefined;

  /** The queue for asynchronous events that have failed. */
  readonly onFailure: string | undefined;
}

export interface Statement {
  readonly effect: string;
  readonly actions: readonly string[];

  /** The ids of resources, and patterns of ARNs. */
  readonly resources: readonly string[];
}

export interface DeployedQueue {
  readonly id: string;
  readonly visibility: number;
  readonly retention: number;
  readonly isEncrypted: boolean;
  readonly isRetained: boolean;
  readonly isTagged: boolean;

  /** Whether a policy denies requests without TLS. */
  readonly isTlsOnly: boolean;
  readonly redrive: { readonly to: string; readonly after: number } | undefined;

  /** The queues that may move messages here; all when it is undefined. */
  readonly redriveFrom: readonly string[] | undefined;
}

/** A table of DynamoDB. */
export interface DeployedTable {
  readonly id: string;

  /** The parts of a request CreateTable that decide what the table can hold. */
  readonly definition: {
    readonly BillingMode: string;
    readonly AttributeDefinitions: readonly object[];
    readonly KeySchema: readonly object[];
  };

  /** Whether it has point-in-time recovery. */
  readonly isRecoverable: boolean;
  readonly isProtected: boolean;
  readonly isEncrypted: boolean;
  readonly isRetained: boolean;
  readonly isTagged: boolean;
}

/** A queue whose messages invoke a function. */
export interface Mapping {
  readonly queue: string;
  readonly function: string;
  readonly batchSize: number;
  readonly window: number;
  readonly concurrency: number | undefined;
  readonly reportsFailures: boolean;
}

export interface Schedule {
  readonly function: string;
  readonly expression: string;
}

/** A stage of an HTTP API. */
export interface Stage {
  readonly api: string;
  readonly rate: number | undefined;
  readonly burst: number | undefined;

  /** The id of the log group for the access log. */
  readonly log: string | undefined;
}

export interface LogGroup {
  readonly id: string;
  readonly name: string;
  readonly days: number | undefined;
}

export interface Alarm {
  readonly namespace: string;

  /** The metrics: several in an expression. */
  readonly metrics: readonly string[];

  /** The dimensions of the first metric: ids of resources, or text. */
  readonly dimensions: Readonly<Record<string, string>>;
  readonly comparison: string;
  readonly threshold: number;
  readonly periods: number;
  readonly missing: string;
  readonly isNotified: boolean;
}
