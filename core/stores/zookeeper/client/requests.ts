import { type Reader, Writer } from "./jute.ts";
import type { Created, MultiOp, NewNode, Node, Path, Stat } from "./zookeeper.ts";

/** A request: its kind, its body, and the decoder of its answer. */
export interface Request<T> {
  readonly kind: number;
  readonly body: Writer;
  readonly writes: boolean;
  decode(answer: Reader): T;

  /** The result when the node does not exist. Default: a failure. */
  readonly absent?: () => T;
}

const KINDS = {
  create: 1,
  remove: 2,
  read: 4,
  write: 5,
  children: 8,
  sync: 9,
  multi: 14,
  create2: 15,
  createContainer: 19,
  auth: 100,
  ephemerals: 103,
  closeSession: -11,
} as const;

/** The numbers of messages outside the order of requests. */
export const XIDS = { watch: -1, auth: -4 } as const;

/** Returns the number of the next request: after the highest one it is 1, as the negative ones have meanings of their own. */
export function xidAfter(xid: number): number {
  return xid === 2 ** 31 - 1 ? 1 : xid + 1;
}

const MODES = { persistent: 0, ephemeral: 1, sequential: 3, container: 4 } as const;

/** Who may access a new node: everybody, or the user of the session. */
export type Access = "anyone" | "creator";

const ALL = 31;

const nothing = () => undefined;

export function createRequest(node: NewNode, access: Access): Request<Created> {
  return {
    kind: kindOf(node),
    body: newNode(node, access),
    writes: true,
    decode: (answer) => ({ path: answer.text(), czxid: readStat(answer).czxid }),
  };
}

export function removeRequest(path: Path): Request<void> {
  return { kind: KINDS.remove, body: removal(path), writes: true, decode: nothing };
}

export function writeRequest(path: Path, data: string, version?: number): Request<Stat> {
  return {
    kind: KINDS.write,
    body: newData(path, data, version),
    writes: true,
    decode: readStat,
  };
}

export function readRequest(path: Path, watch: boolean): Request<Node | undefined> {
  return {
    kind: KINDS.read,
    body: new Writer().text(path).bool(watch),
    writes: false,
    decode: (answer) => ({ data: answer.text(), stat: readStat(answer) }),
    absent: nothing,
  };
}

export function childrenRequest(
  path: Path,
  watch: boolean,
): Request<readonly string[] | undefined> {
  return {
    kind: KINDS.children,
    body: new Writer().text(path).bool(watch),
    writes: false,
    decode: (answer) => answer.list(() => answer.text()),
    absent: nothing,
  };
}

export function ephemeralsRequest(): Request<readonly Path[]> {
  return {
    kind: KINDS.ephemerals,
    body: new Writer().text("/"),
    writes: false,
    decode: (answer) => answer.list(() => answer.text()),
  };
}

export function syncRequest(): Request<void> {
  return { kind: KINDS.sync, body: new Writer().text("/"), writes: false, decode: nothing };
}

export function closeRequest(): Request<void> {
  return { kind: KINDS.closeSession, body: new Writer(), writes: false, decode: nothing };
}

/** The failure of a transaction, with the code of the operation that failed. */
export class MultiFailure extends Error {
  readonly code: number;

  constructor(code: number) {
    super(`an operation of a transaction was answered with code ${code}`);
    this.code = code;
  }
}

export function multiRequest(
  ops: readonly MultiOp[],
  access: Access,
): Request<readonly (Path | undefined)[]> {
  const body = new Writer();
  for (const op of ops) {
    switch (op.op) {
      case "create":
        part(body, kindOf(op.node)).append(newNode(op.node, access));
        break;
      case "remove":
        part(body, KINDS.remove).append(removal(op.path));
        break;
      case "write":
        part(body, KINDS.write).append(newData(op.path, op.data, op.version));
    }
  }
  return { kind: KINDS.multi, body: part(body, -1, true), writes: true, decode: readMulti };
}

/** Makes the first message of each connection after its opening. */
export function authPacket(user: string, password: string): Writer {
  const credentials = new Writer().int(0).text("digest").text(`${user}:${password}`);
  return new Writer().int(XIDS.auth).int(KINDS.auth).append(credentials);
}

function kindOf({ mode }: NewNode): number {
  return mode === "container" ? KINDS.createContainer : KINDS.create2;
}

function newNode({ path, data = "", mode = "persistent" }: NewNode, access: Access): Writer {
  const [scheme, id] = access === "creator" ? ["auth", ""] : ["world", "anyone"];
  const acl = new Writer().int(1).int(ALL).text(scheme).text(id);
  return new Writer().text(path).text(data).append(acl).int(MODES[mode]);
}

function removal(path: Path): Writer {
  return new Writer().text(path).int(-1);
}

function newData(path: Path, data: string, version = -1): Writer {
  return new Writer().text(path).text(data).int(version);
}

/** Writes the header of a part of a transaction, or its end. */
function part(body: Writer, kind: number, isLast = false): Writer {
  return body.int(kind).bool(isLast).int(-1);
}

function readMulti(answer: Reader): readonly (Path | undefined)[] {
  const results: (Path | undefined)[] = [];
  let failure = 0;
  for (;;) {
    const kind = answer.int();
    const isLast = answer.bool();
    answer.int();
    if (isLast) break;
    if (kind === -1) failure ||= answer.int();
    else results.push(readResult(kind, answer));
  }
  // The code of the operations before the failed one is 0.
  if (failure !== 0) throw new MultiFailure(failure);
  return results;
}

function readResult(kind: number, answer: Reader): Path | undefined {
  const path = kind === KINDS.create || kind === KINDS.create2 ? answer.text() : undefined;
  // 3.8 answers a create2 inside a transaction as a create, with the path alone.
  if (kind === KINDS.create2 || kind === KINDS.write) readStat(answer);
  return path;
}

/** The owner of a container (EphemeralType.CONTAINER_EPHEMERAL_OWNER). */
const CONTAINER = -(2n ** 63n);

function readStat(answer: Reader): Stat {
  const czxid = answer.long();
  const mzxid = answer.long();
  const createdAt = new Date(Number(answer.long()));
  answer.long();
  const version = answer.int();
  answer.int();
  answer.int();
  const owner = answer.long();
  answer.int();
  answer.int();
  answer.long();
  return { czxid, mzxid, createdAt, version, owner: owner === CONTAINER ? 0n : owner };
}
