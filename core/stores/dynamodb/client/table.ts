import { sleep } from "../../../lock/abort.ts";
import { hasCode, StoreRefusedError, StoreUnavailableError } from "../../../lock/errors.ts";
import { retryUntilKnown } from "../../../lock/retry.ts";
import { elapsedSince, instant, type Millis } from "../../../lock/time.ts";
import type { Dynamodb } from "./dynamodb.ts";
import { RequestFailure } from "./failure.ts";

/** The table of a store, for migrations. */
export interface DynamodbTable {
  readonly name: string;

  /** The request CreateTable, as JSON that `aws dynamodb create-table --cli-input-json` accepts. */
  readonly definition: string;

  /** The request after CreateTable, which cannot turn on point-in-time recovery. */
  readonly afterwards: string;

  exists(): Promise<boolean>;

  /**
   * Makes the table, with capacity on demand and point-in-time recovery, and waits until it can be used. Resolves to false
   * if the table exists.
   */
  create(): Promise<boolean>;
}

export function dynamodbTable(dynamodb: Dynamodb, name: string): DynamodbTable {
  const definition = {
    TableName: name,
    BillingMode: "PAY_PER_REQUEST",
    AttributeDefinitions: [
      { AttributeName: "pk", AttributeType: "S" },
      { AttributeName: "sk", AttributeType: "S" },
    ],
    KeySchema: [
      { AttributeName: "pk", KeyType: "HASH" },
      { AttributeName: "sk", KeyType: "RANGE" },
    ],
  };
  const find = async () => {
    const answer = await orUndefined(dynamodb.manage("DescribeTable", {}), MISSING);
    return (answer as Description | undefined)?.Table;
  };
  return {
    name,
    definition: JSON.stringify(definition, null, 2),
    afterwards:
      `then, for backups: aws dynamodb update-continuous-backups --table-name ${name} ` +
      "--point-in-time-recovery-specification PointInTimeRecoveryEnabled=true",
    exists: async () => (await find()) !== undefined,
    async create() {
      const { address } = dynamodb;
      let isLost = false;
      /** Resolves to whether the table was missing. After a lost answer, the table that exists is ours. */
      const make = async () => {
        try {
          const made = await orUndefined(dynamodb.manage("CreateTable", definition), EXISTS);
          return made !== undefined || isLost;
        } catch (error) {
          isLost ||= hasCode(error, "UNKNOWN_OUTCOME");
          throw error;
        }
      };
      const startedAt = instant();
      let created = false;
      let table = await find();
      // A table that is being deleted is missing in the end.
      for (; !isUsable(table); table = await find()) {
        if (table === undefined) {
          const what = `table ${name} was made`;
          created = (await retryUntilKnown(address, what, undefined, make)) || created;
        }
        checkWait(address, table, elapsedSince(startedAt));
        await sleep(PAUSE);
      }
      checkKeys(address, table, definition);
      const backups = { PointInTimeRecoverySpecification: { PointInTimeRecoveryEnabled: true } };
      // DynamoDB Local has no backups.
      const keep = () => orUndefined(dynamodb.manage("UpdateContinuousBackups", backups), UNKNOWN);
      const what = `point-in-time recovery of table ${name} was enabled`;
      // An empty table may be one whose maker has not come this far.
      if (created || table.ItemCount === 0)
        await retryUntilKnown(address, what, undefined, async () => (await keep()) ?? {});
      return created;
    },
  };
}

/** The pause between two looks at a table that is being made. */
const PAUSE: Millis = 200;

/** How long a table may take to be made, or deleted. */
const LONGEST_WAIT: Millis = 120_000;

function isUsable(table: Table | undefined): table is Table {
  return table?.TableStatus === "ACTIVE" || table?.TableStatus === "UPDATING";
}

/** Throws for a table that will not be usable, or has not been for long. */
function checkWait(address: string, table: Table | undefined, waited: Millis): void {
  const { TableStatus = "CREATING" } = table ?? {};
  const problem = `its status is ${TableStatus}`;
  if (!/^(CREATING|DELETING)$/.test(TableStatus)) throw new StoreRefusedError(address, problem);
  if (waited > LONGEST_WAIT) throw new StoreUnavailableError(address, problem);
}

const MISSING = "ResourceNotFoundException";
const EXISTS = "ResourceInUseException";
const UNKNOWN = "UnknownOperationException";

interface Keys {
  readonly AttributeDefinitions?: readonly {
    readonly AttributeName: string;
    readonly AttributeType: string;
  }[];
  readonly KeySchema?: readonly { readonly AttributeName: string; readonly KeyType: string }[];
}

interface Table extends Keys {
  readonly TableStatus: string;

  /** Counted by DynamoDB every few hours. */
  readonly ItemCount?: number;
}

interface Description {
  readonly Table: Table;
}

/** Throws a StoreRefusedError for a table that was made for something else. */
function checkKeys(address: string, found: Keys, wanted: Keys): void {
  const [has, needs] = [describeKeys(found), describeKeys(wanted)];
  if (has === needs) return;
  const problem = `its key is ${has}, and must be ${needs}; use another table`;
  throw new StoreRefusedError(address, problem);
}

/** Returns the attributes of the key and their types, such as "pk (S), sk (S)". */
function describeKeys({ AttributeDefinitions = [], KeySchema = [] }: Keys): string {
  const keys = KeySchema.toSorted(({ KeyType: a }, { KeyType: b }) => (a < b ? -1 : 1));
  const types = new Map(AttributeDefinitions.map((one) => [one.AttributeName, one.AttributeType]));
  return keys
    .map(({ AttributeName }) => `${AttributeName} (${types.get(AttributeName)})`)
    .join(", ");
}

/** Resolves to undefined after this exception. */
async function orUndefined(answer: Promise<unknown>, code: string): Promise<unknown> {
  try {
    return await answer;
  } catch (error) {
    const cause = error instanceof StoreRefusedError ? error.cause : undefined;
    if (cause instanceof RequestFailure && cause.code === code) return undefined;
    throw error;
  }
}
