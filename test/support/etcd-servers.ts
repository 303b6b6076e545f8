export interface EtcdServer {
  readonly name: string;
  readonly version: string;
  readonly endpoints: readonly string[];
  readonly etcdctl: string;
}

declare module "vitest" {
  export interface ProvidedContext {
    readonly etcdServers: readonly EtcdServer[];
  }
}
