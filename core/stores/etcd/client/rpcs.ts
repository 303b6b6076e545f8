import type { BinaryWriter } from "@bufbuild/protobuf/wire";
import * as messages from "./messages.ts";
import type { StreamName } from "./streams.ts";
import type { Message, MethodName } from "./wire.ts";

/** A method of a service of gRPC. */
export interface Rpc {
  readonly path: string;
  encode(message: Message): Uint8Array;
  decode(bytes: Uint8Array): Message;
}

interface Encoder {
  encode(message: never): BinaryWriter;
}

interface Decoder {
  decode(bytes: Uint8Array): object;
}

function rpc(path: string, request: Encoder, answer: Decoder): Rpc {
  return {
    path: `/etcdserverpb.${path}`,
    encode: (message) => request.encode(message as never).finish(),
    decode: (bytes) => answer.decode(bytes) as Message,
  };
}

/** The methods that the client calls. */
export const RPCS: Readonly<Record<MethodName | StreamName | "authenticate", Rpc>> = {
  range: rpc("KV/Range", messages.RangeRequest, messages.RangeResponse),
  txn: rpc("KV/Txn", messages.TxnRequest, messages.TxnResponse),
  grant: rpc("Lease/LeaseGrant", messages.LeaseGrantRequest, messages.LeaseGrantResponse),
  revoke: rpc("Lease/LeaseRevoke", messages.LeaseRevokeRequest, messages.LeaseRevokeResponse),
  timeToLive: rpc(
    "Lease/LeaseTimeToLive",
    messages.LeaseTimeToLiveRequest,
    messages.LeaseTimeToLiveResponse,
  ),
  keepAlive: rpc(
    "Lease/LeaseKeepAlive",
    messages.LeaseKeepAliveRequest,
    messages.LeaseKeepAliveResponse,
  ),
  watch: rpc("Watch/Watch", messages.WatchRequest, messages.WatchResponse),
  authenticate: rpc(
    "Auth/Authenticate",
    messages.AuthenticateRequest,
    messages.AuthenticateResponse,
  ),
};
