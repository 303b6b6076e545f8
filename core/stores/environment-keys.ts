import type { AwsCredentials } from "./aws-keys.ts";

/** Returns the keys in the environment. Read them for each request: an environment that is restored from a snapshot gets new ones. */
export async function environmentKeys(): Promise<AwsCredentials> {
  const { AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN } = process.env;
  if (!AWS_ACCESS_KEY_ID || !AWS_SECRET_ACCESS_KEY) {
    throw new Error("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give credentials");
  }
  return {
    accessKeyId: AWS_ACCESS_KEY_ID,
    secretAccessKey: AWS_SECRET_ACCESS_KEY,
    sessionToken: AWS_SESSION_TOKEN,
  };
}
