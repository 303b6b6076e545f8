import { checkText } from "../../../lock/checks.ts";
import { quote } from "../../../lock/errors.ts";
import { checkOptionNames, type OptionNames } from "../../../lock/options.ts";
import { checkTlsOptions } from "../../pem.ts";
import type { EtcdOptions } from "./etcd.ts";

/** Those of the gateway: gRPC has no `fetch`. */
const CONNECTION_OPTIONS = {
  endpoints: true,
  user: true,
  password: true,
  tokens: true,
  tls: true,
  timeout: true,
  fetch: true,
} satisfies OptionNames<EtcdOptions & { readonly fetch: unknown }>;

/**
 * Returns the options with endpoints as HOST:PORT, and with `tls` if the endpoints were https URLs, as etcdctl takes them.
 *
 * Throws a TypeError for an invalid endpoint or login, and for endpoints and `tls` that contradict each other.
 */
export function withPlainEndpoints<O extends EtcdOptions>(options: O): O {
  checkOptionNames("etcd", options, CONNECTION_OPTIONS);
  checkLogin(options);
  const { endpoints, tls } = options;
  checkTlsOptions(tls);
  if (!Array.isArray(endpoints) || endpoints.length === 0) {
    throw new TypeError('etcd needs a list of endpoints, such as ["127.0.0.1:2379"]');
  }
  const parts = endpoints.map(parse);
  const schemes = new Set(parts.map(({ scheme }) => scheme ?? (tls ? "https" : "http")));
  if (schemes.size > 1 || (tls && schemes.has("http"))) {
    throw new TypeError(
      `etcd's endpoints must all be encrypted or none: ${endpoints.map((one) => quote(one)).join(", ")}${
        tls ? ", with the option tls" : ""
      }`,
    );
  }
  const plain = { ...options, endpoints: parts.map(({ address }) => address) };
  return schemes.has("https") ? { ...plain, tls: tls ?? {} } : plain;
}

function checkLogin({ user, password, tokens }: EtcdOptions): void {
  if (user !== undefined && (typeof user !== "string" || user === "")) {
    throw new TypeError("etcd's option user must be a text that is not empty");
  }
  if (password !== undefined && typeof password !== "string") {
    throw new TypeError("etcd's option password must be a text");
  }
  if (password !== undefined && user === undefined) {
    throw new TypeError("etcd's option password needs the option user");
  }
  if (tokens !== undefined && !(tokens instanceof Map)) {
    throw new TypeError("etcd's option tokens must be a Map");
  }
}

function parse(endpoint: string): {
  readonly scheme: string | undefined;
  readonly address: string;
} {
  checkText("endpoint", endpoint, 1_000);
  const [, scheme, address] =
    /^(?:(https?):\/\/)?((?:\[[\da-f:.%]+\]|[^:/?#@\s]+)(?::\d{1,5})?)\/?$/i.exec(endpoint) ?? [];
  if (address !== undefined && URL.canParse(`http://${address}`)) {
    return { scheme: scheme?.toLowerCase(), address };
  }
  throw new TypeError(
    `etcd's endpoint ${quote(endpoint)} must be HOST:PORT, http://HOST:PORT or https://HOST:PORT`,
  );
}
