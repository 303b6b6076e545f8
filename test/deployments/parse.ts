import { parse } from "@cdktf/hcl2json";

export { parse as parseYaml } from "yaml";

/** Parses a file of Terraform. Expressions stay as "${…}". */
export function parseHcl(text: string): Promise<unknown> {
  return parse("main.tf", text);
}
