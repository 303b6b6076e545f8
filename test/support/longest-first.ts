import { BaseSequencer, type TestSpecification } from "vitest/node";

/** The projects in the order of their start. */
const PROJECTS = ["servers", "processes", "unit"];

/** Files that run a whole conformance suite in few lines. */
const SUITES = /\/test\/stores\//;

/**
 * Starts the longest files first, so that the run does not end with one of them. Vitest sorts the files of a project by
 * their durations in earlier runs, or else by their sizes. Files that need servers take the longest, and conformance suites
 * longer than their size tells.
 */
export default class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ project, moduleId }: TestSpecification) =>
      SUITES.test(moduleId) ? -1 : PROJECTS.indexOf(project.name);
    return (await super.sort(files)).sort((a, b) => rank(a) - rank(b));
  }
}
