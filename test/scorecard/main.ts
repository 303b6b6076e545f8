import { print } from "../../functions/cli/terminal/output.ts";
import { writeScorecard } from "./write.ts";

print(writeScorecard());
