import type { Answer } from "./route.ts";

/** The files of a page that shows the OpenAPI document, by name; "index.html" is among them. */
export interface Page {
  readonly files: ReadonlyMap<string, PageFile>;
}

export interface PageFile {
  readonly type: string;
  readonly body: string | Uint8Array<ArrayBuffer>;
}

/** The page loads nothing from elsewhere, and what it shows cannot run anything. Swagger UI sets styles inline. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self' 'unsafe-inline'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

export function pageFile({ files }: Page, name: string): Answer | undefined {
  const file = files.get(name);
  if (!file) return undefined;
  const headers = { "Content-Type": file.type, "Content-Security-Policy": POLICY };
  return { status: 200, body: file.body, headers };
}
