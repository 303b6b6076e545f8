/** Makes the answer of a proxy that has passed the request on, and says that this has failed. It proves nothing. */
export type ErrorAnswer = (request: Buffer) => Uint8Array;

const TEXT = "the proxy says so";

/** An error of a MySQL server, or of a proxy in front of it. */
export function mysqlError(errno: number, sqlState: string): Uint8Array {
  const body = Buffer.from(`\xff\0\0#${sqlState}${TEXT}`, "latin1");
  body.writeUInt16LE(errno, 1);
  return Buffer.concat([Buffer.from([body.length, 0, 0, 1]), body]);
}

/** ER_UNKNOWN_ERROR. */
export const mysqlAnswer: ErrorAnswer = () => mysqlError(1105, "HY000");

/** The end of a connection, as PgBouncer reports it. */
export const postgresAnswer: ErrorAnswer = () => {
  const body = Buffer.from(`SERROR\0VERROR\0C08P01\0M${TEXT}\0\0`, "latin1");
  const head = Buffer.from("E\0\0\0\0", "latin1");
  head.writeInt32BE(body.length + 4, 1);
  return Buffer.concat([head, body]);
};

export const redisAnswer: ErrorAnswer = () => Buffer.from(`-ERR ${TEXT}\r\n`);

/** For the HTTP APIs of DynamoDB, of Redis and of etcd's gateway. */
export const httpAnswer: ErrorAnswer = () =>
  Buffer.from(
    `HTTP/1.1 502 Bad Gateway\r\nContent-Length: ${TEXT.length}\r\nConnection: close\r\n\r\n${TEXT}`,
  );

/** UNAVAILABLE, in an answer of gRPC without a message: the headers of the stream of the request, and its end. */
export const grpcAnswer: ErrorAnswer = (request) => {
  const [indexed200, literal] = [0x88, 0];
  const fields = { "content-type": "application/grpc", "grpc-status": "14", "grpc-message": TEXT };
  const texts = Object.entries(fields).flatMap(([name, value]) => [
    Buffer.from([literal, name.length]),
    Buffer.from(name),
    Buffer.from([value.length]),
    Buffer.from(value),
  ]);
  const block = Buffer.concat([Buffer.from([indexed200]), ...texts]);
  const [headers, endStreamAndHeaders] = [1, 5];
  const frame = Buffer.from([0, 0, block.length, headers, endStreamAndHeaders, 0, 0, 0, 0]);
  frame.writeUInt32BE(streamOf(request), 5);
  return Buffer.concat([frame, block]);
};

/** The stream of the first frame of HTTP/2 that has one. */
function streamOf(request: Buffer): number {
  for (let at = 0; at + 9 <= request.length; at += 9 + request.readUIntBE(at, 3)) {
    const stream = request.readUInt32BE(at + 5);
    if (stream > 0) return stream;
  }
  return 0;
}

/** SystemError (KeeperException.Code), under the number of the request. */
export const zookeeperAnswer: ErrorAnswer = (request) => {
  const answer = Buffer.alloc(20);
  answer.writeInt32BE(16, 0);
  answer.writeInt32BE(request.readInt32BE(4), 4);
  answer.writeInt32BE(-1, 16);
  return answer;
};
