import type { ALBEvent, APIGatewayProxyEvent, APIGatewayProxyEventV2, Context } from "aws-lambda";

/** The event of a request to an HTTP API of API Gateway, payload 2.0, with a decoded path. */
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

/** The event of a request to a function URL, with the path as sent. */
export function functionUrlEvent(more: Parameters<typeof httpApiEvent>[0]): APIGatewayProxyEventV2 {
  const event = httpApiEvent(more);
  const domainName = "xmplxmplxmpl.lambda-url.us-east-2.on.aws";
  return { ...event, requestContext: { ...event.requestContext, domainName } };
}

/** A Lambda context with `millis` left. */
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

interface RestRequest {
  readonly method?: string;

  /** Percent-encoded, without the stage. */
  readonly path?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly query?: Readonly<Record<string, readonly string[]>>;
  readonly body?: string;
}

/** The event of a request to the stage "prod" of a REST API of API Gateway: payload 1.0. */
export function restApiEvent(request: RestRequest): APIGatewayProxyEvent {
  const { method = "GET", path = "/", headers = {}, query, body = null } = request;
  const last = Object.entries(query ?? {}).map(([name, values]) => [name, values.at(-1)]);
  return {
    resource: "/{proxy+}",
    path,
    httpMethod: method,
    headers: { Host: "r3pmxmplak.execute-api.us-east-2.amazonaws.com", ...headers },
    multiValueHeaders: Object.fromEntries(
      Object.entries(headers).map(([name, value]) => [name, [value]]),
    ),
    queryStringParameters: query ? Object.fromEntries(last) : null,
    multiValueQueryStringParameters: query ?? null,
    pathParameters: { proxy: path.slice(1) },
    stageVariables: null,
    requestContext: {
      resourcePath: "/{proxy+}",
      httpMethod: method,
      path: `/prod${path}`,
      stage: "prod",
      domainName: "r3pmxmplak.execute-api.us-east-2.amazonaws.com",
      requestId: "JKJaXmPLvHcESHA=",
      identity: { sourceIp: "205.255.255.176", userArn: null },
    },
    body,
    isBase64Encoded: false,
  } as unknown as APIGatewayProxyEvent;
}

/** The event of a request to a load balancer, which passes queries as sent; with lists if the target group says so. */
export function albEvent(request: RestRequest, { lists }: { readonly lists: boolean }): ALBEvent {
  const { method = "GET", path = "/", headers = {}, query = {}, body = "" } = request;
  const all = { host: "shop.example", ...headers };
  const listed = Object.entries(all).map(([name, value]) => [name, [value]]);
  const single = Object.entries(query).map(([name, values]) => [name, values.at(-1)]);
  return {
    requestContext: {
      elb: { targetGroupArn: "arn:aws:elasticloadbalancing:…:targetgroup/shop/1" },
    },
    httpMethod: method,
    path,
    ...(lists
      ? { multiValueHeaders: Object.fromEntries(listed), multiValueQueryStringParameters: query }
      : { headers: all, queryStringParameters: Object.fromEntries(single) }),
    body,
    isBase64Encoded: false,
  } as ALBEvent;
}
