/**
 * Imports a CommonJS module that does not work in a bundle, since it reads files of its package. Bundlers leave this
 * import to the runtime, which looks for the package beside the bundle.
 *
 * This is JavaScript because the compiler would wrap the argument in a call, which webpack does not leave to the runtime.
 */
export async function importUnbundled(module) {
  return (await import(/* webpackIgnore: true */ module)).default;
}
