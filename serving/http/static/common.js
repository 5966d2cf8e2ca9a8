// What both pages share: asking the API, quantities as people read them, elements.

const TOKEN = "costmodel-token";
// Where the service is: the scripts are one folder below it, also behind a proxy that adds a prefix to its paths.
const SERVICE = new URL("../", import.meta.url);

/** The address of a path of the service, such as "v1/predict". */
export const addressOf = (path) => new URL(path, SERVICE).href;

/** Whether this tab has a token for the service. */
export const hasToken = () => Boolean(sessionStorage.getItem(TOKEN));

/** A problem that the service answered with: its kind is the last part of its type, such as "unknown-model". */
export class Problem extends Error {
  constructor(status, detail, kind = "") {
    super(detail);
    this.status = status;
    this.kind = kind;
  }
}

/** Ask the API for a document; throws a Problem. The token lives as long as the tab. */
export async function ask(path, options = {}) {
  const headers = { ...options.headers };
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.authorization = `Bearer ${token}`;
  let response;
  try {
    response = await fetch(addressOf(path), { ...options, headers });
  } catch {
    throw new Problem(0, "The service does not answer. Check that it runs, then try again.");
  }
  const document = await response.json().catch(() => ({}));
  if (!response.ok) {
    const detail = document.detail || `The service answered with status ${response.status}.`;
    throw new Problem(response.status, detail, String(document.type ?? "").split(":").at(-1));
  }
  return document;
}

/** Ask the API for a list that comes in pages: all of it. */
export async function askAll(path, key) {
  const found = [];
  let after = null;
  do {
    const query = new URLSearchParams({ limit: 1000, ...(after === null ? {} : { after }) });
    const page = await ask(`${path}?${query}`);
    found.push(...page[key]);
    after = page.next;
  } while (after !== null);
  return found;
}

/** Show the field for a token, and go on when there is one. */
export function askForToken(then) {
  const box = document.getElementById("token-box"), field = document.getElementById("token");
  box.hidden = false;
  const use = () => {
    sessionStorage.setItem(TOKEN, field.value.trim());
    box.hidden = true;
    then();
  };
  document.getElementById("token-save").onclick = use;
  field.onkeydown = (event) => {
    if (event.key === "Enter") {
      event.preventDefault();
      use();
    }
  };
  field.focus();
}

/** Make a link to the API show its document also where the service asks for a token, which a link cannot send. */
export function fetchLink(link) {
  const open = async () => {
    try {
      const content = JSON.stringify(await ask(link.getAttribute("href")), null, 1);
      location.assign(URL.createObjectURL(new Blob([content], { type: "application/json" })));
    } catch (problem) {
      if (problem.status === 401) return askForToken(open);
      const status = document.getElementById("status");
      status.textContent = problem.message;
      status.classList.add("problem");
    }
  };
  link.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return; // a new tab has no token, and says so
    event.preventDefault();
    open();
  });
}

/** A latency: three digits and the unit that suits it. */
export function latency(us) {
  const rounded = Number(us.toPrecision(3));
  const [value, unit] = rounded >= 1e6 ? [rounded / 1e6, "s"] : rounded >= 1e3 ? [rounded / 1e3, "ms"] : [rounded, "µs"];
  return `${value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2)} ${unit}`;
}

export const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)}%`;

/** An element with attributes and children; text is text, never markup. */
export function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null && value !== false) element.setAttribute(key, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** The same of SVG. */
export function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** A horizontal bar that is 100 wide, of parts that are [share of 1, class, title]. */
export function stacked(parts, label, height = 14) {
  const picture = svg("svg", { viewBox: `0 0 100 ${height}`, height, preserveAspectRatio: "none", role: "img", "aria-label": label });
  picture.append(svg("rect", { class: "track", width: 100, height, rx: 1 }));
  let x = 0;
  for (const [share, kind, title] of parts) {
    const rect = svg("rect", { class: kind, x: 100 * x, width: 100 * share, height });
    if (title) rect.append(svg("title", {}, title));
    picture.append(rect);
    x += share;
  }
  return picture;
}

/** Rows of a table: each a list of [content, class]. */
export function fill(table, headers, rows) {
  table.replaceChildren(
    h("thead", {}, h("tr", {}, ...headers.map(([text, kind]) => h("th", { scope: "col", class: kind || null }, text)))),
    h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map(([content, kind]) => h("td", { class: kind || null }, content))))),
  );
}

fetchLink(document.getElementById("api"));
