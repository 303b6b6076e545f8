import { StoreRefusedError } from "../../core/lock/errors.ts";
import type { Dynamodb } from "../../core/stores/dynamodb/client/dynamodb.ts";
import { type Finding, note, ok, problem } from "./finding.ts";

/** Resolves to the server's clock, in milliseconds since 1970, give or take half a second. */
export async function readDynamodbClock(dynamodb: Dynamodb, signal: AbortSignal): Promise<number> {
  const { time } = await dynamodb.read([{ pk: "lockstep-doctor", sk: "clock" }], signal);
  return time + 500;
}

/** The part of DescribeTable's answer that matters here. */
interface Description {
  readonly Table: {
    readonly TableStatus: string;
    readonly BillingModeSummary?: { readonly BillingMode?: string };
    readonly ProvisionedThroughput?: {
      readonly ReadCapacityUnits?: number;
      readonly WriteCapacityUnits?: number;
    };
    readonly DeletionProtectionEnabled?: boolean;
  };
}

/** Reads the table's state, its capacity, and whether it may be deleted. */
export async function examineDynamodb(dynamodb: Dynamodb): Promise<readonly Finding[]> {
  let answer: unknown;
  try {
    answer = await dynamodb.manage("DescribeTable", {});
  } catch (error) {
    if (!(error instanceof StoreRefusedError)) throw error;
    return [note("tables", "the credentials may not describe the table", "look at it yourself")];
  }
  const { Table: table } = answer as Description;
  return [judgeStatus(table), judgeCapacity(table), judgeProtection(table)];
}

function judgeStatus({ TableStatus: status }: Description["Table"]): Finding {
  const text = `the table is ${status.toLowerCase()}`;
  // A table whose settings change serves requests.
  if (status === "ACTIVE" || status === "UPDATING") return ok("tables", text);
  return problem("tables", text, "wait until it is active, or name another table");
}

function judgeCapacity(table: Description["Table"]): Finding {
  const { BillingModeSummary: billing, ProvisionedThroughput: units } = table;
  if (billing?.BillingMode === "PAY_PER_REQUEST") return ok("capacity", "on demand");
  const text = `provisioned, ${units?.ReadCapacityUnits} reads and ${units?.WriteCapacityUnits} writes per second`;
  return note("capacity", `${text}: waiters poll, and more is throttled`, ON_DEMAND);
}

function judgeProtection({
  DeletionProtectionEnabled: isProtected,
}: Description["Table"]): Finding {
  if (isProtected) return ok("durability", "every answered write is kept; deletion protection");
  const risk = "every answered write is kept, until somebody deletes the table";
  return note("durability", risk, "turn deletion protection on");
}

const ON_DEMAND = "give the table capacity on demand, or more of it";
const LOGIN = "check the credentials, what they permit, and the region";

/** The advice for the exceptions of DynamoDB. */
export const DYNAMODB_CURES: Readonly<Record<string, string>> = {
  AccessDeniedException: LOGIN,
  ExpiredTokenException: LOGIN,
  IncompleteSignatureException: LOGIN,
  InvalidSignatureException: `${LOGIN}; and this machine's clock`,
  MissingAuthenticationTokenException: LOGIN,
  NoCredentials: "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
  ProvisionedThroughputExceededException: ON_DEMAND,
  RequestLimitExceeded: ON_DEMAND,
  ThrottlingException: ON_DEMAND,
  UnrecognizedClientException: LOGIN,
};
