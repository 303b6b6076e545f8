/**
 * Returns the error for a package that could not be imported: a TypeError that says how to install the package if it is
 * missing.
 *
 * Packages that users need not install are imported as `import("name")` within `try`: only there a bundler accepts that
 * the package is missing. A package that is installed becomes a part of the bundle.
 */
export function importError(name: string, error: unknown, user = "this"): unknown {
  const { code } = error as { readonly code?: unknown };
  // The second code is that of webpack and Rspack.
  if (code !== "ERR_MODULE_NOT_FOUND" && code !== "MODULE_NOT_FOUND") return error;
  return new TypeError(`${user} needs the package ${name}: npm install ${name}`, { cause: error });
}

/**
 * Lets CommonJS packages that were bundled by esbuild into an ES module load Node's modules. They call a global `require`,
 * which Node's ES modules lack; esbuild puts a function in its place that throws.
 */
export function provideRequire(): void {
  const isStub = typeof require === "function" && require.resolve === undefined;
  if (isStub) Object.assign(globalThis, { require: requireBuiltin });
}

function requireBuiltin(name: string): unknown {
  const found = process.getBuiltinModule(name);
  if (found) return found;
  throw Object.assign(new Error(`Cannot find module '${name}'`), { code: "MODULE_NOT_FOUND" });
}
