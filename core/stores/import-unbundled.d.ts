/** The runtime imports the CommonJS module, and no bundler does. */
export function importUnbundled<T>(module: string): Promise<T>;
