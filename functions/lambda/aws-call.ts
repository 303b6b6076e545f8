import { AwsClient } from "aws4fetch";
import { deadline, race } from "../../core/lock/abort.ts";
import type { Millis } from "../../core/lock/time.ts";

export interface AwsCall {
  /** As it is signed for: "sqs". */
  readonly service: string;
  readonly region: string;
  readonly endpoint: string;

  /** As it stands in X-Amz-Target: "AmazonSQS.SendMessage". */
  readonly target: string;
  readonly version: "1.0" | "1.1";
  readonly body: object;
}

/** For the attempts of a call together. What is stuck must not be waited for by every event of an environment. */
const LONGEST: Millis = 5_000;

/**
 * One call of an AWS service that speaks JSON, with the credentials that Lambda puts into the environment. Its
 * failure says which call it was, and nothing of what was sent. It is sent again, up to twice, when the service says
 * 429 or 5xx, which may mean that it was done already.
 *
 * Not the AWS SDK: loading it takes longer than most cold starts.
 */
export async function callAws<T>({
  endpoint,
  target,
  version,
  body,
  ...signing
}: AwsCall): Promise<T> {
  // Read at each call: an environment that is restored from a snapshot has others.
  const { AWS_ACCESS_KEY_ID = "", AWS_SECRET_ACCESS_KEY = "", AWS_SESSION_TOKEN } = process.env;
  const client = new AwsClient({
    ...signing,
    accessKeyId: AWS_ACCESS_KEY_ID,
    secretAccessKey: AWS_SECRET_ACCESS_KEY,
    ...(AWS_SESSION_TOKEN && { sessionToken: AWS_SESSION_TOKEN }),
    retries: 2,
  });
  const headers = { "content-type": `application/x-amz-json-${version}`, "x-amz-target": target };
  const limit = deadline(LONGEST, () => new Error(`${target} was not answered in ${LONGEST} ms`));
  try {
    const request = { method: "POST", headers, body: JSON.stringify(body), signal: limit.signal };
    // A request that is made before it is sent forgets its signal with the next garbage collection.
    const response = await race(client.fetch(endpoint, request), limit.signal);
    if (!response.ok) throw new Error(`${target} was refused with ${response.status}`);
    return (await race(response.json(), limit.signal)) as T;
  } finally {
    limit[Symbol.dispose]();
  }
}

/** What an ARN says: arn:PARTITION:SERVICE:REGION:ACCOUNT:NAME. */
export function parseArn(arn: string) {
  const [, partition = "", service = "", region = "", account = "", ...name] = arn.split(":");
  const domain = partition === "aws-cn" ? "amazonaws.com.cn" : "amazonaws.com";
  return { service, region, account, name: name.join(":"), host: `${service}.${region}.${domain}` };
}
