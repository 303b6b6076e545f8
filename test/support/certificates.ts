import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { generate } from "selfsigned";

const DAY = 86_400_000;

/** A certificate authority of our own, whose certificates are PEM files. */
export interface Authority extends AsyncDisposable {
  readonly ca: string;

  /** The certificate and key of a host, valid until so many days from now. */
  sign(host: string, days?: number): Promise<{ readonly cert: string; readonly key: string }>;
}

export async function makeAuthority(): Promise<Authority> {
  const folder = await mkdtemp(join(tmpdir(), "lockstep-pem-"));
  const authority = await generate([{ name: "commonName", value: "Test authority" }], {
    keyType: "ec",
    algorithm: "sha256",
    notBeforeDate: new Date(Date.now() - 3 * DAY),
    extensions: [
      { name: "basicConstraints", cA: true, critical: true },
      { name: "keyUsage", keyCertSign: true, critical: true },
    ],
  });
  const write = async (name: string, text: string) => {
    const file = join(folder, name);
    await writeFile(file, text);
    return file;
  };
  return {
    ca: await write("ca.pem", authority.cert),
    async sign(host, days = 1) {
      const signed = await generate([{ name: "commonName", value: host }], {
        keyType: "ec",
        algorithm: "sha256",
        notBeforeDate: new Date(Date.now() - 2 * DAY),
        notAfterDate: new Date(Date.now() + days * DAY),
        ca: { key: authority.private, cert: authority.cert },
        extensions: [{ name: "subjectAltName", altNames: [{ type: 2, value: host }] }],
      });
      return {
        cert: await write(`${host}.${days}.pem`, signed.cert),
        key: await write(`${host}.${days}.key`, signed.private),
      };
    },
    [Symbol.asyncDispose]: () => rm(folder, { recursive: true, force: true }),
  };
}
