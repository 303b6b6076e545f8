/** What any function costs. */
export async function handler(): Promise<object> {
  return { statusCode: 200 };
}
