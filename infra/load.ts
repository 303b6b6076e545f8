/** A module, unless the client package that it needs is not installed: then it rejects with a TypeError. */
export async function load<T>(client: string, module: () => Promise<T>): Promise<T> {
  try {
    return await module();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ERR_MODULE_NOT_FOUND") throw error;
    throw new TypeError(`this needs the package ${client}: npm install ${client}`, {
      cause: error,
    });
  }
}
