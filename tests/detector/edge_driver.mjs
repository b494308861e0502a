// Runs the worker's module on what stands in the standard input, and writes what it did: one process for many vectors.
import { createHash } from "node:crypto";
import { pathToFileURL } from "node:url";

const canary = await import(pathToFileURL(process.argv[2]));
let text = "";
for await (const part of process.stdin) text += part;
const { env, ids, labels, paths, texts, visits, responses, refused, sites, streams } = JSON.parse(text);
const site = canary.readSite(env);
const bytes = (base64) => new Uint8Array(Buffer.from(base64, "base64"));
const base64 = (array) => Buffer.from(array).toString("base64");
const request = ({ url, method, headers }) => new Request(url, { method, headers });

const found = { ids: [], sentences: [], paths: [], texts: [], stamped: [], responses: [], refused: [], sites: [], streams: [] };
for (const [tier, label] of labels) found.ids.push(String(await canary.edgeId(env.CANARY_EDGE_SECRET, tier, label)));
for (const id of ids) found.sentences.push(await canary.render(BigInt(id), site));
for (const path of paths) found.paths.push(canary.canonicalPath(new URL(`https://site.example${path}`).pathname));
for (const one of texts) found.texts.push(canary.escapeHtml(one));
for (const visit of visits) {
  const { html, row } = await canary.stampPage(bytes(visit.page), request(visit), env, visit.now);
  found.stamped.push([base64(html), canary.logLine(row)]);
}
for (const visit of responses) {
  const lines = [];
  const answer = new Response(bytes(visit.page), { status: visit.status, headers: visit.answer });
  const log = async (row) => {
    if (visit.broken) throw new Error("disk full");
    lines.push(canary.logLine(row));
  };
  const sent = await canary.stampResponse(request(visit), answer, env, log, visit.now);
  found.responses.push([base64(await sent.arrayBuffer()), lines, [...sent.headers]]);
}
for (const { parts, size, fails, cancels, ...visit } of streams) {
  // A page that comes in parts; made only when somebody asks for the next one.
  const seen = { made: 0, cancelled: false, lines: [] };
  const pull = (out) => {
    if (seen.made === fails) return out.error(new Error("broken page"));
    if (seen.made === parts) return out.close();
    out.enqueue(new Uint8Array(size).fill(seen.made++));
  };
  const source = new ReadableStream({ pull, cancel: () => void (seen.cancelled = true) }, { highWaterMark: 0 });
  const answer = new Response(source, { headers: visit.answer });
  const log = (row) => void seen.lines.push(canary.logLine(row));
  try {
    const sent = await canary.stampResponse(request(visit), answer, env, log, visit.now);
    seen.held = seen.made;
    seen.headers = [...sent.headers];
    const digest = createHash("sha256");
    if (cancels) await sent.body.cancel();
    else for await (const part of sent.body) digest.update(part);
    seen.sha256 = digest.digest("hex");
  } catch (error) {
    seen.error = error.message;
  }
  found.streams.push(seen);
}
for (const bad of refused) {
  try {
    canary.readSite(bad);
    found.refused.push(null);
  } catch (error) {
    found.refused.push(error.message);
  }
}
for (const [settings, codes] of sites) {
  const other = canary.readSite({ ...env, CANARY_SITE: settings });
  found.sites.push(await Promise.all(codes.map((id) => canary.render(BigInt(id), other))));
}
process.stdout.write(JSON.stringify(found));
