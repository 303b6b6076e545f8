import type { SecureContext, SecureContextOptions } from "node:tls";

/** Makes the certificates of a client's connections. Throws a TypeError if they cannot be used. */
export function secureContext(
  store: string,
  { ca, cert, key }: Pick<SecureContextOptions, "ca" | "cert" | "key">,
): SecureContext {
  // Not an import: clients without TLS need not load the module.
  const { createSecureContext } = process.getBuiltinModule("node:tls");
  try {
    return createSecureContext({ ca, cert, key });
  } catch (error) {
    const problem = "ca, cert and key must be PEM texts, and the key that of the certificate";
    throw new TypeError(`${store}'s tls cannot be used: ${problem}`, { cause: error });
  }
}
