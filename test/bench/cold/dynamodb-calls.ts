import { AwsV4Signer } from "aws4fetch";

const {
  DYNAMODB_ENDPOINT = "",
  AWS_ACCESS_KEY_ID: accessKeyId = "",
  AWS_SECRET_ACCESS_KEY: secretAccessKey = "",
} = process.env;
const { request } = process.getBuiltinModule("node:http");

/** Sends the requests of a lock, signed, without a client library. */
export async function handler(): Promise<object> {
  const owner = { ":owner": { S: crypto.randomUUID() } };
  await update("SET #owner = :owner ADD fence :one", "attribute_not_exists(#owner)", {
    ...owner,
    ":one": { N: "1" },
  });
  await update("REMOVE #owner", "#owner = :owner", owner);
  return {};
}

function update(set: string, when: string, values: object): Promise<void> {
  return call("UpdateItem", {
    TableName: "cold",
    Key: { pk: { S: "bare" }, sk: { S: "bare" } },
    UpdateExpression: set,
    ConditionExpression: when,
    ExpressionAttributeNames: { "#owner": "owner" },
    ExpressionAttributeValues: values,
  });
}

async function call(operation: string, message: object): Promise<void> {
  const body = JSON.stringify(message);
  const signer = new AwsV4Signer({
    ...{ accessKeyId, secretAccessKey, service: "dynamodb", region: "local" },
    ...{ method: "POST", url: DYNAMODB_ENDPOINT, body },
    headers: {
      "content-type": "application/x-amz-json-1.0",
      "x-amz-target": `DynamoDB_20120810.${operation}`,
    },
  });
  const { method, headers } = await signer.sign();
  return new Promise((resolve, reject) => {
    const options = { method, headers: Object.fromEntries(headers) };
    const sent = request(DYNAMODB_ENDPOINT, options, (answer) =>
      answer.on("end", resolve).resume(),
    );
    sent.on("error", reject).end(body);
  });
}
