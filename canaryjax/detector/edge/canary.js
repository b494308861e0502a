/**
 * Stamps HTML pages per request in an edge worker: the twin of stamp.py and asgi.py, equal to them byte for byte.
 *
 *   import { logLine, stampResponse } from "./canary.js";
 *
 *   export default {
 *     async fetch(request, env) {
 *       return stampResponse(request, await fetch(request), env, (row) => env.LOG.write(logLine(row)));
 *     },
 *   };
 *
 * env.LOG stands for whatever appends a line to the site's log: a queue, a log service, a server of your own.
 * env.CANARY_EDGE_SECRET  the text of the file edge_secret
 * env.CANARY_SITE         site.json of `canaryjax detector edge`, as text or parsed; as secret as the word lists in it,
 *                         and with some hundred kilobytes too large for a plain variable of most edges: bundle it
 *
 * A page is handled as bytes, and the sentence goes in as ASCII with character references, so that a page in any
 * encoding that extends ASCII, well-formed or not, keeps every byte of its own. Errors name no word of the lists.
 */

const PREFIX = "canaryjax-canary/1/";
const LISTS = ["given", "surname", "place", "event"]; // 12 bits each, the highest first
const LIST_SIZE = 4096;
const HTML_TYPES = ["text/html", "application/xhtml+xml"];
const LARGEST_PAGE = 8 * 2 ** 20; // bytes; a larger one is no page of prose
const SECRET = /^[\t-\r ]*[\x21-\x7e]{16,}[\t-\r ]*$/;
const LONGEST_SECRET = 4096;
const LONGEST_PATH = 2048;
const LONGEST_AGENT = 512;
// What a stamped answer must not keep: it is made for one visitor, and is not what the site computed these for.
const STALE_HEADERS = [
  "accept-ranges",
  "cache-control",
  "content-digest",
  "content-length",
  "content-md5",
  "digest",
  "etag",
  "expires",
  "last-modified",
  "repr-digest",
  "transfer-encoding",
];
const FIELDS = [...LISTS, "archive", "opening", "year"].sort(); // of a sentence
const LONGEST_WINDOW = 36_600 * 86_400; // seconds
// What each setting is, in words and as a check: the bounds that its Python readers keep.
const SETTINGS = {
  ...Object.fromEntries(LISTS.map((l) => [l, [`${LIST_SIZE} entries`, (v) => texts(v) && v.length === LIST_SIZE]])),
  archive: ["16 to 4096 entries, a power of two,", (v) => texts(v) && whole(Math.log2(v.length), 4, 12)],
  first_year: ["a year, 1000 to 9999,", (v) => whole(v, 1000, 9999)],
  years: ["a number, 2 to 4096,", (v) => whole(v, 2, 4096)],
  openings: ["texts", texts],
  sentences: ["texts with each field once", (v) => texts(v) && v.every(hasFields)],
  agents: ["pairs of texts", (v) => Array.isArray(v) && v.every((pair) => texts(pair) && pair.length === 2)],
  marker: ["ASCII text", (v) => texts([v]) && v.trim() !== "" && /^[\x00-\x7f]*$/.test(v)],
  window_seconds: [`a whole number, 1 to ${LONGEST_WINDOW},`, (v) => whole(v, 1, LONGEST_WINDOW)],
  ip_header: ["null or a header's name", (v) => v === null || (texts([v]) && /^[a-z0-9!#$%&'*+.^_`|~-]+$/.test(v))],
};
const BODY_END = /<\/body[\t\n\f\r />]/gi;
const PLAIN = /^[A-Za-z0-9\-._~]$/;
const KEPT = /^[A-Za-z0-9\-._~/!$&'()*+,;=:@]$/;

/** Id of the sentence for a label, a BigInt: the first 48 bits of HMAC-SHA256. */
export async function edgeId(secret, tier, label) {
  const key = await crypto.subtle.importKey("raw", utf8(secret.trim()), { name: "HMAC", hash: "SHA-256" }, false, [
    "sign",
  ]);
  const mac = new Uint8Array(await crypto.subtle.sign("HMAC", key, utf8(`${PREFIX}${tier}/${label}`)));
  return mac.subarray(0, 6).reduce((id, byte) => (id << 8n) | BigInt(byte), 0n);
}

/** Sentence of an id; `site` as `readSite` gives it. */
export async function render(id, site) {
  const fields = {};
  LISTS.forEach((list, place) => {
    fields[list] = site[list][Number((id >> BigInt(36 - 12 * place)) & 0xfffn)];
  });
  fields.archive = site.archive[await checked("archive", id, site.archive.length)];
  fields.year = String(site.first_year + (await checked("year", id, site.years)));
  fields.opening = site.openings[await checked("opening", id, site.openings.length)];
  const shape = site.sentences[await checked("shape", id, site.sentences.length)];
  // One pass, by a function: a word may hold braces or dollar signs.
  return shape.replace(/\{([a-z]+)\}/g, (_, field) => fields[field]);
}

async function checked(kind, id, size) {
  const head = utf8(`${PREFIX}${kind}/`);
  const message = new Uint8Array(head.length + 6);
  message.set(head);
  for (let place = 0; place < 6; place++) {
    message[head.length + place] = Number((id >> BigInt(40 - 8 * place)) & 0xffn);
  }
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", message));
  return (digest[0] * 256 + digest[1]) % size;
}

/** The edition for a request: {vendor, tier, label, id}; `now` in milliseconds since 1970. */
export async function editionFor(request, env, now = Date.now()) {
  const site = readSite(env);
  const path = canonicalPath(new URL(request.url).pathname);
  const vendor = claimedVendor(request.headers.get("user-agent"), site.agents);
  const window = site.window_seconds * 1000;
  const start = new Date(Math.floor(now / window) * window).toISOString().replace(/\.\d+Z$/, "Z");
  const [tier, label] = vendor === null ? ["window", `${start}|${path}`] : ["vendor", `${vendor}|${path}`];
  return { vendor, tier, label, id: await edgeId(env.CANARY_EDGE_SECRET, tier, label) };
}

/**
 * Stamps a page, a Uint8Array: {html, row}. Where it has neither marker nor body's end, html is the page itself, and the
 * row has no id. Log the row before the page goes out.
 */
export async function stampPage(html, request, env, now = Date.now()) {
  const site = readSite(env);
  const edition = await editionFor(request, env, now);
  const page = put(html, escapeHtml(await render(edition.id, site)), site.marker);
  return { html: page ?? html, row: logRow(request, site, edition.vendor, page && edition, 200, now) };
}

/**
 * Stamps an answer if it is a page, and logs it whatever it is. `log` takes the row; the answer waits for it, and a page
 * whose row cannot be logged goes out as it came, as does one above 8 MiB, which is not held to its end.
 */
export async function stampResponse(request, response, env, log, now = Date.now()) {
  const site = readSite(env);
  if (!isPage(request, response)) {
    await logged(log, plainRow(request, site, response.status, now));
    return response;
  }
  let original;
  try {
    original = await held(response.clone().body);
  } catch (error) {
    await logged(log, plainRow(request, site, 500, now)); // nothing went out yet: the edge answers with its own error
    throw error;
  }
  const { html, row } =
    original === null
      ? { html: null, row: plainRow(request, site, response.status, now) }
      : await stampPage(original, request, env, now);
  // A sentence goes out only if the log has its row: a hit without a row would prove nothing.
  if (!(await logged(log, row)) || row.id === null) return response;
  const headers = new Headers(response.headers);
  STALE_HEADERS.forEach((name) => headers.delete(name));
  headers.delete("content-encoding"); // the body of a fetched answer is decoded, whatever this header says
  headers.set("cache-control", "private, no-store");
  headers.set("content-length", String(html.length));
  return new Response(html, { status: response.status, statusText: response.statusText, headers });
}

/** A body's bytes; null where they are more than a page has, and then the rest stays unread. */
async function held(body) {
  const reader = body?.getReader();
  const parts = [];
  for (let length = 0; reader; ) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    length += value.length;
    if (length > LARGEST_PAGE) {
      reader.cancel().catch(() => {}); // not awaited: it ends when the answer that this is a copy of does
      return null;
    }
  }
  return joined(...parts);
}

/** A row as a line of the log. */
export function logLine(row) {
  return `${JSON.stringify(row)}\n`;
}

/** A text for HTML, as element content or attribute, in ASCII. */
export function escapeHtml(text) {
  const named = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;" };
  const character = (c) => named[c] ?? (c.codePointAt(0) < 128 ? c : `&#${c.codePointAt(0)};`);
  return Array.from(text, character).join(""); // by code points, not by halves of them
}

/** A path in one spelling; dot segments are resolved already, by `URL`. */
export function canonicalPath(pathname) {
  const spelt = (text) => {
    if (text.length === 3) {
      const character = String.fromCharCode(parseInt(text.slice(1), 16));
      return PLAIN.test(character) ? character : text.toUpperCase(); // %2F is no slash, but %7E is ~
    }
    return KEPT.test(text) ? text : `%${text.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}`;
  };
  return pathname.replace(/%[0-9A-Fa-f]{2}|[^]/g, spelt).slice(0, LONGEST_PATH);
}

let latest = { source: null, site: null }; // parsing the lists takes longer than stamping a page

/** The settings of an env, parsed and checked: what would fail at some request, or stamp nonsense, fails here. */
export function readSite(env) {
  const source = env.CANARY_SITE;
  checkSecret(env.CANARY_EDGE_SECRET);
  if (latest.source === source && source) return latest.site;
  const site = typeof source === "string" ? parsed(source) : source;
  if (site?.version !== 1) throw new Error("expected settings of version 1 in CANARY_SITE; write them anew");
  for (const [key, [wanted, holds]] of Object.entries(SETTINGS)) {
    if (!holds(site[key])) throw new Error(`expected ${wanted} of ${key} in CANARY_SITE, found other; write it anew`);
  }
  latest = { source, site };
  return site;
}

/** As Python checks the file edge_secret: a key that it refuses would give ids that it cannot check. */
function checkSecret(secret) {
  const text = String(secret ?? "");
  if (SECRET.test(text) && text.length <= LONGEST_SECRET) return;
  const found = text.trim() ? "another text" : "none";
  throw new Error(`expected the edge secret in CANARY_EDGE_SECRET, 16 or more ASCII characters, found ${found}`);
}

function texts(value) {
  return Array.isArray(value) && value.length > 0 && value.every((one) => typeof one === "string" && one !== "");
}

function whole(value, low, high) {
  return Number.isInteger(value) && low <= value && value <= high;
}

function hasFields(shape) {
  const found = Array.from(shape.matchAll(/\{([a-z]+)\}/g), ([, field]) => field);
  return String(found.sort()) === String(FIELDS);
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null; // the parser's own error quotes the text
  }
}

function claimedVendor(userAgent, agents) {
  const agent = asciiLower(userAgent ?? "");
  const found = agents.find(([part]) => agent.includes(asciiLower(part)));
  return found ? found[1] : null;
}

function asciiLower(text) {
  // Python and JavaScript differ in what other letters become.
  return text.replace(/[A-Z]+/g, (letters) => letters.toLowerCase());
}

function put(html, sentence, marker) {
  const text = new TextDecoder("latin1").decode(html); // one character a byte; only places are taken from it
  const place = text.indexOf(marker);
  if (place >= 0) return joined(html.subarray(0, place), utf8(sentence), html.subarray(place + marker.length));
  const ends = [...text.matchAll(BODY_END)];
  if (!ends.length) return null;
  const end = ends[ends.length - 1].index;
  return joined(html.subarray(0, end), utf8(`<p>${sentence}</p>\n`), html.subarray(end));
}

function joined(...parts) {
  const whole = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  parts.reduce((place, part) => (whole.set(part, place), place + part.length), 0);
  return whole;
}

function isPage(request, response) {
  const kind = (response.headers.get("content-type") ?? "").split(";")[0].trim().toLowerCase();
  return request.method === "GET" && response.status === 200 && HTML_TYPES.includes(kind);
}

function plainRow(request, site, status, now) {
  return logRow(request, site, claimedVendor(request.headers.get("user-agent"), site.agents), null, status, now);
}

function logRow(request, site, vendor, edition, status, now) {
  const agent = request.headers.get("user-agent");
  return {
    time: new Date(now).toISOString(),
    path: canonicalPath(new URL(request.url).pathname),
    ip: site.ip_header === null ? null : request.headers.get(site.ip_header),
    user_agent: agent === null ? null : agent.slice(0, LONGEST_AGENT),
    vendor,
    tier: edition ? edition.tier : null,
    label: edition ? edition.label : null,
    id: edition ? edition.id.toString(16).padStart(12, "0") : null,
    page_status: status,
  };
}

async function logged(log, row) {
  try {
    await log(row);
    return true;
  } catch (error) {
    console.error(`the request log cannot be written (${error.name}): pages go out unstamped`);
    return false;
  }
}

function utf8(text) {
  return new TextEncoder().encode(text);
}
