import type { APIGatewayProxyEventV2, Context } from "aws-lambda";

/** A request as an HTTP API of API Gateway delivers it, payload 2.0: its path is decoded. */
export function httpApiEvent(more: Partial<APIGatewayProxyEventV2> & { readonly method?: string }) {
  const { method = "GET", rawPath = "/", ...rest } = more;
  return {
    version: "2.0",
    routeKey: "$default",
    rawPath,
    rawQueryString: "",
    headers: {
      accept: "*/*",
      "content-length": "0",
      host: "r3pmxmplak.execute-api.us-east-2.amazonaws.com",
      "user-agent": "curl/7.61.1",
      "x-amzn-trace-id": "Root=1-5eaaeb0b-4b2b1b1b",
      "x-forwarded-for": "205.255.255.176",
      "x-forwarded-port": "443",
      "x-forwarded-proto": "https",
    },
    requestContext: {
      accountId: "123456789012",
      apiId: "r3pmxmplak",
      domainName: "r3pmxmplak.execute-api.us-east-2.amazonaws.com",
      domainPrefix: "r3pmxmplak",
      http: {
        method,
        path: rawPath,
        protocol: "HTTP/1.1",
        sourceIp: "205.255.255.176",
        userAgent: "curl/7.61.1",
      },
      requestId: "JKJaXmPLvHcESHA=",
      routeKey: "$default",
      stage: "$default",
      time: "10/Mar/2020:05:16:23 +0000",
      timeEpoch: 1_583_817_383_220,
    },
    isBase64Encoded: false,
    ...rest,
  } as APIGatewayProxyEventV2;
}

/** The same at a function URL: its path is as it was sent. */
export function functionUrlEvent(more: Parameters<typeof httpApiEvent>[0]): APIGatewayProxyEventV2 {
  const event = httpApiEvent(more);
  const domainName = "xmplxmplxmpl.lambda-url.us-east-2.on.aws";
  return { ...event, requestContext: { ...event.requestContext, domainName } };
}

/** What Lambda tells a function about its invocation, with so many milliseconds left. */
export function lambdaContext(left: () => number = () => 30_000): Context {
  return {
    callbackWaitsForEmptyEventLoop: true,
    functionName: "http",
    functionVersion: "$LATEST",
    invokedFunctionArn: "arn:aws:lambda:us-east-2:123456789012:function:http",
    memoryLimitInMB: "256",
    awsRequestId: "c6af9ac6-7b61-11e6-9a41-93e8deadbeef",
    logGroupName: "/aws/lambda/http",
    logStreamName: "2026/11/21/[$LATEST]abcdef",
    getRemainingTimeInMillis: left,
    done() {},
    fail() {},
    succeed() {},
  };
}
