import { BaseSequencer, type TestSpecification } from "vitest/node";

/** The projects in the order of their start. */
const PROJECTS = ["servers", "processes", "unit"];

/** Files that run a whole conformance suite in few lines, and mostly wait for ttls to pass. */
const SUITES = /\/test\/stores\//;

/**
 * Starts the longest files first, so that the run does not end with one of them. Vitest sorts the files of a project by
 * their durations in earlier runs, or else by their sizes. Files that need servers take the longest.
 *
 * Conformance suites take longer than their size tells. They take turns with the others, which keep the processors busy.
 */
export default class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ project }: TestSpecification) => PROJECTS.indexOf(project.name);
    const sorted = (await super.sort(files)).sort((a, b) => rank(a) - rank(b));
    const suites = sorted.filter(({ moduleId }) => SUITES.test(moduleId));
    const others = sorted.filter(({ moduleId }) => !SUITES.test(moduleId));
    const length = Math.max(suites.length, others.length);
    return Array.from({ length }, (_, i) => [suites[i], others[i]])
      .flat()
      .filter((file) => file !== undefined);
  }
}
