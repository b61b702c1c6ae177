// Asks the API, by its paths below /api/v1; what it refuses is an error with its message.

export async function ask(path) {
  const answer = await fetch(`/api/v1/${path}`);
  const text = await answer.text();
  const isJson = (answer.headers.get("content-type") ?? "").startsWith("application/json");
  if (answer.ok && isJson) return JSON.parse(text);
  throw new Error(isJson ? JSON.parse(text).message : text || `status ${answer.status}`);
}
