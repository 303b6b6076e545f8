import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { Application, type ProjectReflection } from "typedoc";
import type { PluginOptions } from "typedoc-plugin-markdown";
import { ROOT } from "../paths.ts";

/** Writes a page for each entry of the package into a folder, from the docstrings of its sources. */
export async function writeApi(folder: string): Promise<void> {
  const entries = entriesOfPackage();
  const options: PluginOptions = {
    entryFileName: "index",
    hidePageHeader: true,
    hideBreadcrumbs: true,
    useCodeBlocks: true,
    parametersFormat: "table",
    interfacePropertiesFormat: "table",
    typeDeclarationFormat: "table",
    enumMembersFormat: "table",
  };
  const app = await Application.bootstrapWithPlugins({
    entryPoints: [...entries.values()],
    plugin: [fileURLToPath(import.meta.resolve("typedoc-plugin-markdown"))],
    tsconfig: `${ROOT}tsconfig.json`,
    basePath: ROOT,
    router: "module",
    name: "API, every public name",
    readme: "none",
    excludeInternal: true,
    excludePrivate: true,
    excludeExternals: true,
    disableSources: true,
    disableGit: true,
    // The compiler of the project checks the sources: it is newer than the one that TypeDoc brings.
    skipErrorChecking: true,
    logLevel: "Error",
    out: folder,
    ...options,
  });
  const project = await app.convert();
  if (!project) throw new Error("TypeDoc has made nothing of the sources");
  nameModules(project, entries);
  await app.generateOutputs(project);
}

/** The source of each entry, by the name that users import. */
function entriesOfPackage(): ReadonlyMap<string, string> {
  const { exports } = JSON.parse(readFileSync(`${ROOT}package.json`, "utf8"));
  return new Map(
    Object.entries<{ readonly default: string }>(exports)
      .filter(([entry]) => entry !== "./package.json")
      .map(([entry, { default: file }]) => [
        entry.replace(".", "lockstep"),
        ROOT + file.replace("./dist/", "").replace(/\.js$/, ".ts"),
      ]),
  );
}

/** Gives modules the names that users import. TypeDoc names them by their files. */
function nameModules(project: ProjectReflection, entries: ReadonlyMap<string, string>): void {
  const names = new Map(
    [...entries].map(([name, file]) => [
      file.slice(ROOT.length).replace(/(\/index)?\.ts$/, ""),
      name,
    ]),
  );
  for (const module of project.children ?? []) {
    const name = names.get(module.name.replace(/\/index$/, ""));
    if (name === undefined) throw new Error(`no entry of the package is the module ${module.name}`);
    module.name = name;
  }
}
