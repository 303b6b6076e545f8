import { executeCommand } from "../../../functions/cli/execute-command.ts";

/** Returns a page with the help of every command. */
export async function commandLinePage(): Promise<string> {
  const main = await helpOf([]);
  const commands = [];
  for (const command of commandsIn(main)) commands.push(await sectionsOf(command, "##"));
  return `# Command line, every option

The output of \`lockstep COMMAND --help\` for every command. The [guide](/command-line.md) explains stores, output and exit statuses.

${block(main)}

${commands.join("\n\n")}
`;
}

/** Returns the help of a command and of its subcommands. */
async function sectionsOf(command: readonly string[], level: string): Promise<string> {
  const help = await helpOf(command);
  const inner = [];
  for (const sub of commandsIn(help)) {
    if (sub.length > command.length) inner.push(await sectionsOf(sub, `${level}#`));
  }
  return [`${level} lockstep ${command.join(" ")}`, block(help), ...inner].join("\n\n");
}

/** Returns what yargs prints. */
async function helpOf(command: readonly string[]): Promise<string> {
  const { log } = console;
  const printed: string[] = [];
  console.log = (text: string) => printed.push(text);
  try {
    await executeCommand([...command, "--help"]);
  } finally {
    console.log = log;
  }
  return printed.join("\n");
}

/** Returns the words of each command that a help lists. */
function commandsIn(help: string): readonly (readonly string[])[] {
  const [, list = ""] = /^Commands:\n((?: .*\n)*)/m.exec(help) ?? [];
  return [...list.matchAll(/^ {2}lockstep ((?:[a-z][a-z-]* ?)+)/gm)].map(([, words = ""]) =>
    words.trim().split(" "),
  );
}

function block(text: string): string {
  return `\`\`\`text\n${text.trim()}\n\`\`\``;
}
