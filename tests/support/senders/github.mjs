// Webhooks as GitHub's own library signs them, one a line: {"path", "id", "headers", "body" (base64)}.
// node github.mjs DIR COUNT SECRET, with @octokit/webhooks-examples and @octokit/webhooks-methods below DIR/node_modules.
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [dir, count, secret] = process.argv.slice(2);
const examples = createRequire(join(dir, "x.js"))("@octokit/webhooks-examples");
const library = join(dir, "node_modules/@octokit/webhooks-methods/dist-node/index.js");
const { sign } = await import(pathToFileURL(library).href);

const payloads = examples.flatMap(({ name, examples }) =>
  examples.map((example) => ({ name, body: JSON.stringify(example) })));
for (let nth = 0; nth < Number(count); nth++) {
  const { name, body } = payloads[nth % payloads.length];
  const id = `gh-${nth}`;
  const headers = {
    "Content-Type": "application/json",
    "User-Agent": "GitHub-Hookshot/044aadd",
    "X-GitHub-Event": name,
    "X-GitHub-Delivery": id,
    "X-Hub-Signature-256": await sign(secret, body),
  };
  console.log(JSON.stringify({ path: "/hooks/github", id, headers, body: Buffer.from(body).toString("base64") }));
}
