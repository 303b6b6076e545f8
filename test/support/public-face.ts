import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import {
  type HeritageClause,
  isClassDeclaration,
  isFunctionTypeNode,
  isHeritageClause,
  isImportTypeNode,
  isInterfaceDeclaration,
  isIntersectionTypeNode,
  isParameterDeclaration,
  isParenthesizedTypeNode,
  isTypeAliasDeclaration,
  isTypeLiteralNode,
  isTypeParameterDeclaration,
  isTypeReferenceNode,
  isUnionTypeNode,
  type Node,
  SyntaxKind,
} from "typescript/unstable/ast";
import {
  API,
  type Checker,
  type Project,
  SymbolFlags,
  type Symbol as TypeScriptSymbol,
} from "typescript/unstable/sync";

const root = fileURLToPath(new URL("../..", import.meta.url));

/** Within the project, so that the compiler finds the types of other packages. */
const CACHE = join(root, "node_modules/.cache");

/** A type that users get from an entry, and the public name through which they get it. */
export interface GivenType {
  /** The file of the declaration without its extension, "#" and the name. */
  readonly type: string;
  readonly through: string;
}

/** What the package shows to its users, read from the declarations that the build emits. */
export interface PublicFace {
  /** The declarations, as in {@link GivenType}, by entry and public name. */
  readonly entries: ReadonlyMap<string, ReadonlyMap<string, string>>;

  /** The object types that functions, methods, properties and callbacks give to users. */
  readonly given: readonly GivenType[];

  /** Every class of errors in the package. */
  readonly errors: readonly string[];

  /** What the compiler finds wrong with the declarations that it reads for the entries. */
  readonly problems: readonly string[];
}

/** Emits the declarations of the package and reads them. */
export function readPublicFace(): PublicFace {
  mkdirSync(CACHE, { recursive: true });
  const folder = mkdtempSync(join(CACHE, "face-"));
  try {
    emitDeclarations(folder);
    const api = new API({ cwd: folder });
    try {
      const configurations = ["all.json", "entries.json"].map((name) => join(folder, name));
      const snapshot = api.updateSnapshot({ openProjects: configurations });
      const [all, entries] = configurations.map((file) => snapshot.getProject(file));
      if (!all || !entries) throw new Error(`the compiler finds no project in ${folder}`);
      return { ...new FaceReader(folder, all).read(), problems: problemsOf(entries, folder) };
    } finally {
      api.close();
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function emitDeclarations(outDir: string): void {
  const tsc = join(root, "node_modules/typescript/bin/tsc");
  const build = ["-p", join(root, "tsconfig.build.json"), "--outDir", outDir];
  const declarationsAlone = ["--noCheck", "--emitDeclarationOnly", "--declarationMap", "false"];
  execFileSync(process.execPath, [tsc, ...build, ...declarationsAlone], { cwd: root });
  const compilerOptions = {
    strict: true,
    module: "nodenext",
    target: "es2024",
    lib: ["es2024", "esnext.disposable"],
    types: ["node"],
    noEmit: true,
  };
  const all = { compilerOptions, include: ["core", "functions", "infra"] };
  const entries = { compilerOptions, files: [...entryFiles().values()] };
  writeFileSync(join(outDir, "all.json"), JSON.stringify(all));
  writeFileSync(join(outDir, "entries.json"), JSON.stringify(entries));
}

/** The file of declarations by entry. */
function entryFiles(): ReadonlyMap<string, string> {
  const { exports } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const entries = Object.entries<{ readonly types?: string }>(exports);
  return new Map(
    entries.flatMap(([entry, { types }]) => (types ? [[entry, types.replace("./dist/", "")]] : [])),
  );
}

/** The problems in the package itself. */
function problemsOf({ program }: Project, folder: string): readonly string[] {
  const found = program.getSemanticDiagnostics();
  const own = found.filter(({ fileName }) => fileName?.startsWith(folder));
  return own.map(({ fileName = "", text }) => `${relative(folder, fileName)}: ${text}`);
}

class FaceReader {
  readonly #folder: string;
  readonly #project: Project;
  readonly #checker: Checker;
  readonly #given = new Map<string, string>();
  readonly #visited = new Set<number>();

  /** Types of values that users pass: the callbacks in them give values to users. */
  readonly #passed = new Map<TypeScriptSymbol, string>();

  constructor(folder: string, project: Project) {
    this.#folder = folder;
    this.#project = project;
    this.#checker = project.checker;
  }

  read(): Omit<PublicFace, "problems"> {
    const entries = new Map<string, ReadonlyMap<string, string>>();
    for (const [entry, file] of entryFiles()) entries.set(entry, this.#readEntry(entry, file));
    this.#walkPassed();
    const given = [...this.#given].map(([type, through]) => ({ type, through }));
    return { entries, given, errors: this.#errors() };
  }

  #readEntry(entry: string, file: string): ReadonlyMap<string, string> {
    const names = new Map<string, string>();
    for (const symbol of this.#exportsOf(file)) {
      const target = this.#resolve(symbol);
      names.set(symbol.name, this.#idOf(target));
      if (target.flags & SymbolFlags.Value)
        this.#walkSymbol(target, true, `${entry} ${symbol.name}`);
    }
    return names;
  }

  #exportsOf(file: string): readonly TypeScriptSymbol[] {
    const source = this.#project.program.getSourceFile(join(this.#folder, file));
    const module = source && this.#checker.getSymbolAtLocation(source);
    return module ? this.#checker.getExportsOfModule(module) : [];
  }

  #errors(): readonly string[] {
    const files = this.#project.rootFiles.map((file) => relative(this.#folder, file));
    const symbols = files.flatMap((file) => this.#exportsOf(file));
    const errors = symbols.map((one) => this.#resolve(one)).filter((one) => this.#isError(one));
    return [...new Set(errors.map((symbol) => this.#idOf(symbol)))];
  }

  #isError(symbol: TypeScriptSymbol): boolean {
    const declaration = this.#declarationsOf(symbol).find(isClassDeclaration);
    const [base] = declaration?.heritageClauses?.flatMap((clause) => [...clause.types]) ?? [];
    const target = base && this.#checker.getSymbolAtLocation(base.expression);
    return (
      target !== undefined && (target.name === "Error" || this.#isError(this.#resolve(target)))
    );
  }

  #resolve(symbol: TypeScriptSymbol): TypeScriptSymbol {
    return symbol.flags & SymbolFlags.Alias ? this.#checker.getAliasedSymbol(symbol) : symbol;
  }

  #idOf(symbol: TypeScriptSymbol): string {
    const file = relative(this.#folder, symbol.declarations[0]?.path ?? "");
    return `${file.replace(/\.d\.ts$/, "")}#${symbol.name}`;
  }

  /** The declarations in the package. */
  #declarationsOf(symbol: TypeScriptSymbol): readonly Node[] {
    const own = symbol.declarations.filter(({ path }) => path.startsWith(this.#folder));
    return own.flatMap((declaration) => declaration.resolve(this.#project) ?? []);
  }

  /** `isGiven`: whether users get values of the type. Otherwise they pass values of the type. */
  #walkSymbol(symbol: TypeScriptSymbol, isGiven: boolean, through: string): void {
    if (this.#visited.has(symbol.id)) return;
    if (!isGiven) {
      this.#passed.set(symbol, through);
      return;
    }
    this.#visited.add(symbol.id);
    for (const node of this.#declarationsOf(symbol)) this.#walk(node, isGiven, through);
  }

  /** Walks last, and leaves out the types that users get from the package before they pass them. */
  #walkPassed(): void {
    for (const [symbol, through] of this.#passed) {
      if (this.#visited.has(symbol.id)) continue;
      this.#visited.add(symbol.id);
      for (const node of this.#declarationsOf(symbol)) this.#walk(node, false, through);
    }
  }

  #walk(node: Node, isGiven: boolean, through: string): void {
    if (isTypeParameterDeclaration(node)) return;
    if (isHeritageClause(node)) {
      this.#walkBases(node, isGiven, through);
      return;
    }
    if (isTypeReferenceNode(node)) this.#visit(node.typeName, isGiven, through);
    if (isImportTypeNode(node) && node.qualifier) this.#visit(node.qualifier, isGiven, through);
    const isGivenInside = isParameterDeclaration(node) ? !isGiven : isGiven;
    node.forEachChild((child) => this.#walk(child, isGivenInside, through));
  }

  /** The members of a base type are members of the type itself, so a user needs no name of the base. */
  #walkBases(clause: HeritageClause, isGiven: boolean, through: string): void {
    for (const { expression, typeArguments = [] } of clause.types) {
      const names = typeArguments.flatMap((type) =>
        isTypeReferenceNode(type) ? type.typeName : [],
      );
      for (const name of [expression, ...names]) {
        const base = this.#checker.getSymbolAtLocation(name);
        if (base) this.#walkSymbol(this.#resolve(base), isGiven, through);
      }
    }
  }

  /** Whether a name stands for objects or functions. A user seldom writes the name of a text or of a number. */
  #isOfObjects(node: Node): boolean {
    if (isTypeAliasDeclaration(node)) return this.#isOfObjects(node.type);
    if (isUnionTypeNode(node) || isIntersectionTypeNode(node)) {
      return node.types.some((type) => this.#isOfObjects(type));
    }
    if (isParenthesizedTypeNode(node)) return this.#isOfObjects(node.type);
    if (isTypeReferenceNode(node)) {
      const symbol = this.#checker.getSymbolAtLocation(node.typeName);
      const declarations = symbol ? this.#declarationsOf(this.#resolve(symbol)) : [];
      return declarations.some((declaration) => this.#isOfObjects(declaration));
    }
    return OBJECT_KINDS.some((is) => is(node));
  }

  #visit(name: Node, isGiven: boolean, through: string): void {
    const found = this.#checker.getSymbolAtLocation(name);
    if (!found) return;
    const symbol = this.#resolve(found);
    const [declaration] = this.#declarationsOf(symbol);
    if (!declaration || isTypeParameterDeclaration(declaration)) return;
    const id = this.#idOf(symbol);
    const needsName = isExported(declaration) && this.#isOfObjects(declaration);
    if (isGiven && needsName && !this.#given.has(id)) {
      this.#given.set(id, through);
    }
    this.#walkSymbol(symbol, isGiven, id);
  }
}

const OBJECT_KINDS = [
  isClassDeclaration,
  isInterfaceDeclaration,
  isTypeLiteralNode,
  isFunctionTypeNode,
];

/** A type that no other module uses is a part of the types of its own module. */
function isExported(node: Node): boolean {
  return (
    "modifiers" in node &&
    (node.modifiers as readonly Node[] | undefined)?.some(
      ({ kind }) => kind === SyntaxKind.ExportKeyword,
    ) === true
  );
}
