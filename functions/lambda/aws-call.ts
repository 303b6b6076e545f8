import { AwsClient } from "aws4fetch";
import { deadline, race } from "../../core/lock/abort.ts";
import type { Millis } from "../../core/lock/time.ts";
import { type AwsKeys, keysOf } from "../../core/stores/aws-keys.ts";
import { environmentKeys } from "../../core/stores/environment-keys.ts";

export interface AwsCall {
  /** The service name in the signature: "sqs". */
  readonly service: string;
  readonly region: string;
  readonly endpoint: string;

  /** The header X-Amz-Target: "AmazonSQS.SendMessage". */
  readonly target: string;
  readonly version: "1.0" | "1.1";
  readonly body: object;

  /** Default: the keys that Lambda puts into the environment. */
  readonly credentials?: AwsKeys | undefined;
}

/** The time for all attempts of a call. A call that hangs must not delay every event of the environment. */
const TIMEOUT: Millis = 5_000;

/**
 * Calls an AWS service that speaks JSON. An error names the call, and nothing of its body. After a 429 or 5xx response the request is repeated up to twice; the service may
 * then execute the call more than once.
 *
 * Does not use the AWS SDK: loading the SDK takes longer than most cold starts.
 */
export async function callAws<T>({
  endpoint,
  target,
  version,
  body,
  credentials = environmentKeys,
  ...signing
}: AwsCall): Promise<T> {
  const headers = { "content-type": `application/x-amz-json-${version}`, "x-amz-target": target };
  const limit = deadline(TIMEOUT, () => new Error(`${target} was not answered in ${TIMEOUT} ms`));
  try {
    const { sessionToken, ...keys } = await race(keysOf(credentials), limit.signal);
    const session = sessionToken ? { sessionToken } : {};
    const client = new AwsClient({ ...signing, ...keys, ...session, retries: 2 });
    const request = { method: "POST", headers, body: JSON.stringify(body), signal: limit.signal };
    // The race is needed: a Request object that aws4fetch creates loses its signal at the next garbage collection.
    const response = await race(client.fetch(endpoint, request), limit.signal);
    if (!response.ok) throw new Error(`${target} was refused with ${response.status}`);
    return (await race(response.json(), limit.signal)) as T;
  } catch (error) {
    const { message } = error as Error;
    throw message.includes(target) ? error : new Error(`${target}: ${message}`, { cause: error });
  } finally {
    limit[Symbol.dispose]();
  }
}

/** Splits an ARN, arn:PARTITION:SERVICE:REGION:ACCOUNT:NAME, into its parts. */
export function parseArn(arn: string) {
  const [, partition = "", service = "", region = "", account = "", ...name] = arn.split(":");
  const domain = partition === "aws-cn" ? "amazonaws.com.cn" : "amazonaws.com";
  return { service, region, account, name: name.join(":"), host: `${service}.${region}.${domain}` };
}
