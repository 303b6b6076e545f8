/** The cost of any function. */
export async function handler(): Promise<object> {
  return { statusCode: 200 };
}
