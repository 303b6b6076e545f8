import { BaseSequencer, type TestSpecification } from "vitest/node";

/** The projects in the order of their start. */
const PROJECTS = ["servers", "processes", "unit"];

/** Files that take longer than their size tells: conformance suites, which mostly wait for ttls to pass, and whole programs. */
const LONG = /\/test\/stores\/|\.all\.process\./;

/**
 * Starts the longest files first, so that the run does not end with one of them. Vitest sorts the files of a project by
 * their durations in earlier runs, or else by their sizes. Files that need servers take the longest.
 *
 * Files that take longer than their size tells take turns with the others.
 */
export default class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ project }: TestSpecification) => PROJECTS.indexOf(project.name);
    const sorted = (await super.sort(files)).sort((a, b) => rank(a) - rank(b));
    const long = sorted.filter(({ moduleId }) => LONG.test(moduleId));
    const others = sorted.filter(({ moduleId }) => !LONG.test(moduleId));
    const length = Math.max(long.length, others.length);
    return Array.from({ length }, (_, i) => [long[i], others[i]])
      .flat()
      .filter((file) => file !== undefined);
  }
}
