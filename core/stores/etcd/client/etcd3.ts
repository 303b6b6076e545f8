import type { EtcdOptions } from "./etcd.ts";

/**
 * A client of the package etcd3.
 *
 * Lockstep reads the client's hosts, login and certificates and opens connections of its own, because the client repeats
 * writes. The owner of the client closes it.
 */
export interface Etcd3Client {
  readonly kv: object;
  readonly leaseClient: object;
  close(): void;
}

/** PEM as a buffer of Node. */
interface Etcd3Pem {
  toString(): string;
}

interface Etcd3Settings {
  readonly hosts: string | readonly string[];
  readonly auth?: { readonly username: string; readonly password: string };
  readonly credentials?: {
    readonly rootCertificate?: Etcd3Pem;
    readonly privateKey?: Etcd3Pem;
    readonly certChain?: Etcd3Pem;
  };
}

/** Returns the options of a client. Throws a TypeError when the client has none. */
export function optionsOf(client: Etcd3Client): EtcdOptions {
  const { options } = client as { readonly options?: Etcd3Settings };
  if (!options)
    throw new TypeError("the client is no Etcd3 of the package etcd3: it has no settings");
  const { hosts, auth, credentials } = options;
  const pem = (bytes: Etcd3Pem | undefined) => bytes?.toString();
  const [ca, key, cert] = [
    pem(credentials?.rootCertificate),
    pem(credentials?.privateKey),
    pem(credentials?.certChain),
  ];
  return {
    endpoints: [hosts].flat(),
    ...(auth && { user: auth.username, password: auth.password }),
    ...(credentials && { tls: { ...(ca && { ca }), ...(key && { key }), ...(cert && { cert }) } }),
  };
}
