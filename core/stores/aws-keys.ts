/** Keys of AWS, or a function that returns them, such as a provider of the AWS SDK. */
export type AwsKeys = AwsCredentials | (() => Promise<AwsCredentials>);

export interface AwsCredentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string | undefined;
}

export async function keysOf(given: AwsKeys): Promise<AwsCredentials> {
  return typeof given === "function" ? given() : given;
}
