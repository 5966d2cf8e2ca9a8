import { Problem, addressOf, ask, askAll, askForToken, fill, h, hasToken, latency, percent, stacked, svg } from "./common.js";
import { strip } from "./strip.js";

const at = (id) => document.getElementById(id);
const SOURCES = ["measured", "predicted", "extrapolated", "unpriced"];
const SHOWN = 12;
const MOST_BYTES = 2 ** 31; // more than that no browser reads at once
const state = { model: null, systems: [], chosen: new Set(), answers: [], shown: 0, all: false, asked: 0 };

// What is known

async function start() {
  try {
    const systems = await askAll("v1/systems", "systems");
    state.systems = systems;
    if (!systems.length) {
      at("systems").replaceChildren(h("p", { class: "quiet" }, "Nothing has been measured yet. Run costmodel bench on a machine, or import results."));
      return;
    }
    state.chosen = new Set(systems.slice(0, 6).map((system) => system.name));
    at("systems").replaceChildren(...systems.map(choice));
    if (state.model) predict(); // chosen while the systems were loading
  } catch (problem) {
    if (problem instanceof Problem && problem.status === 401) {
      at("systems").replaceChildren();
      askForToken(start);
    } else say(problem.message, true);
  }
}

function choice(system) {
  const box = h("input", { type: "checkbox", value: system.name });
  box.checked = state.chosen.has(system.name);
  box.addEventListener("change", () => {
    box.checked ? state.chosen.add(system.name) : state.chosen.delete(system.name);
    predict();
  });
  const host = system.host ? `${system.host.model_name || system.host.vendor}, ` : "";
  const threads = system.settings.threads;
  return h("label", { class: "system" }, box, system.name, h("small", {}, `${host}${threads} thread${threads > 1 ? "s" : ""}`));
}

async function examples() {
  const found = await ask("static/examples/index.json").catch(() => []);
  at("examples").replaceChildren(...found.map(({ file, title }) => {
    const button = h("button", { type: "button", "aria-pressed": "false" }, title);
    button.onclick = async () => {
      const graph = await ask(`static/examples/${file}`);
      state.model = { name: title, graph };
      at("file").value = "";
      at("sent").hidden = true;
      named(`Example: ${title}`, button);
      predict();
    };
    return button;
  }));
}

function named(text, pressed = null) {
  at("file-name").textContent = text;
  for (const button of at("examples").children) button.setAttribute("aria-pressed", String(button === pressed));
}

// What is asked

async function take(file) {
  if (!file) return;
  if (file.size >= MOST_BYTES) return say(`${file.name} is too large for a browser (${size(file.size)}). Use costmodel predict --server.`, true);
  say(`Reading ${file.name} …`);
  try {
    const names = strip(new Uint8Array(await file.arrayBuffer()));
    const content = new Blob(names.parts);
    state.model = { name: file.name.replace(/\.onnx$/i, ""), names, content, hash: await digest(content) };
    named(`${file.name}: ${size(content.size)} of ${size(file.size)} to send`);
    URL.revokeObjectURL(at("sent-file").href);
    at("sent-file").href = URL.createObjectURL(content);
    at("sent").hidden = false;
    await predict();
  } catch (error) {
    say(error instanceof Problem ? error.message : `${file.name} is not an ONNX file (${error.message}).`, true);
  }
}

async function digest(content) {
  if (!crypto.subtle) return null; // only where the page came over HTTPS or from this host
  const hash = await crypto.subtle.digest("SHA-256", await content.arrayBuffer());
  return `sha256:${[...new Uint8Array(hash)].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

const size = (bytes) => (bytes < 1e6 ? `${Math.ceil(bytes / 1e3)} kB` : bytes < 1e9 ? `${(bytes / 1e6).toFixed(1)} MB` : `${(bytes / 1e9).toFixed(1)} GB`);

async function predict() {
  if (!state.model || !state.chosen.size) {
    at("results").hidden = true;
    if (state.model && state.systems.length) say("Choose at least one system.");
    return;
  }
  const number = ++state.asked;
  say("Predicting …");
  const wanted = state.systems.filter((system) => state.chosen.has(system.name)).map((system) => system.name);
  const answers = [], problems = [];
  try {
    const options = optionsOf();
    for (const system of wanted) { // one after the other: the first makes the model known to the service
      try {
        answers.push(shownOf(await predictOn(system, options)));
      } catch (problem) {
        if (!(problem instanceof Problem) || problem.status === 401 || problem.status === 0) throw problem;
        problems.push([system, problem]);
      }
      if (number !== state.asked) return;
    }
  } catch (problem) {
    if (problem instanceof Problem && problem.status === 401) return askForToken(predict);
    return failed(problem);
  }
  if (!answers.length) return failed(problems[0][1]);
  state.answers = answers.sort((one, other) => one.latency_us - other.latency_us);
  state.shown = 0;
  state.all = false;
  show();
  const best = state.answers[0];
  const words = `${best.model}: ${latency(best.latency_us)} on ${best.system}`;
  say([`${words}.`, ...problems.map(([system, problem]) => `No answer for ${system}: ${restored(problem.message)}`)].join("\n"));
}

function failed(problem) {
  at("results").hidden = true;
  say(restored(problem.message), true);
}

// The service knows numbers instead of names; people see names.
const restored = (text) => state.model.names?.restore(text) ?? text;

function shownOf(answer) {
  return {
    ...answer,
    model: state.model.name,
    layers: answer.layers.map((layer) => ({ ...layer, name: restored(layer.name) })),
    warnings: answer.warnings.map(restored),
    document: answer,
  };
}

function optionsOf() {
  const options = {};
  if (at("batch").value) options.batch = Number(at("batch").value);
  const shapes = at("shapes").value.trim();
  if (shapes) {
    options.shapes = {};
    for (const part of shapes.split(/[;\s]+/)) {
      const [, name, sizes] = part.match(/^(.+)=(\d+(?:,\d+)*)$/) || [];
      if (!name) throw new Problem(422, `${part} is not a shape. Write it like input=1,3,224,224.`);
      options.shapes[state.model.names?.number(name) ?? name] = sizes.split(",").map(Number);
    }
  }
  const values = at("values").value.trim();
  if (values) {
    options.values = {};
    for (const part of values.split(/[;\s]+/)) {
      const [, name, value] = part.match(/^(.+)=([^=]+)$/) || [];
      const number = { true: 1, false: 0 }[value?.toLowerCase()] ?? Number(value);
      if (!name || !Number.isFinite(number)) throw new Problem(422, `${part} is no value. Write it like use_cache_branch=1.`);
      options.values[state.model.names?.number(name) ?? name] = number;
    }
  }
  return options;
}

// The name of an example is public, that of a file is not.
const sentName = () => (state.model.graph ? state.model.name : "model");

async function predictOn(system, options) {
  const { graph, hash, content } = state.model;
  const name = sentName();
  if (graph || hash) {
    const body = JSON.stringify({ name, system, ...(graph ? { graph } : { model: hash, ...options }) });
    try {
      return await ask("v1/predict", { method: "POST", headers: { "content-type": "application/json" }, body });
    } catch (problem) {
      if (graph || problem.kind !== "unknown-model") throw problem; // else the file is sent below
    }
  }
  const query = new URLSearchParams({ name, system });
  if (options.batch) query.set("batch", options.batch);
  for (const [input, shape] of Object.entries(options.shapes || {})) query.append("shape", `${input}=${shape.join(",")}`);
  for (const [input, value] of Object.entries(options.values || {})) query.append("value", `${input}=${value}`);
  return ask(`v1/predict?${query}`, { method: "POST", headers: { "content-type": "application/octet-stream" }, body: content });
}

// What is shown

function show() {
  const answer = state.answers[state.shown];
  at("results").hidden = false;
  at("answer").replaceChildren(h("div", { class: "answers" }, ...state.answers.map(headline)));
  slider();
  ranking();
  whereItGoes(answer);
  trust(answer);
  programs(answer);
}

function headline(answer, place) {
  const [low, high] = answer.interval_us;
  const users = ["p50", "p90", "p99"].filter((quantile) => answer.quantiles_us[quantile] != null);
  const several = state.answers.length > 1;
  const button = several ? h("button", { type: "button", class: "plain", "aria-pressed": String(place === state.shown) },
    place === state.shown ? "Details shown below" : "Show details") : null;
  if (button) button.onclick = () => { state.shown = place; state.all = false; show(); at("where-heading").scrollIntoView(); };
  return h("article", {},
    h("h3", {}, answer.system),
    h("p", { class: "figure" }, h("b", {}, latency(answer.latency_us)), h("span", {}, `${latency(low)} to ${latency(high)}`),
      h("small", {}, `${percent(answer.interval_level)} interval`)),
    h("p", { class: "quiet" }, users.length ? `On a machine in use: ${users.map((quantile) => `${quantile} ${latency(answer.quantiles_us[quantile])}`).join(", ")}.` : "How much latencies vary on this system has not been measured."),
    stacked(SOURCES.slice(0, 3).map((source) => [answer.coverage[source], source, `${source} ${percent(answer.coverage[source])}`]), coverageWords(answer), 8),
    h("p", { class: "quiet" }, coverageWords(answer)), button);
}

function coverageWords(answer) {
  const parts = SOURCES.slice(0, 3).filter((source) => answer.coverage[source] > 0.0005);
  return parts.map((source) => `${percent(answer.coverage[source])} ${source}`).join(", ") || "no layer has a known cost";
}

// The slider is logarithmic, around what was found.
const seen = (answer) => (at("quantile").value === "quiet" ? 1 : (answer.quantiles_us[at("quantile").value] ?? answer.latency_us) / answer.latency_us);
const ends = () => {
  const latencies = state.answers.map((answer) => answer.latency_us * seen(answer));
  return [Math.log(Math.min(...latencies) / 3), Math.log(Math.max(...latencies) * 3)];
};
const slo = () => {
  const [low, high] = ends();
  return Math.exp(low + (high - low) * (Number(at("slo").value) / 1000));
};

function slider() {
  const [low, high] = ends();
  const wanted = Math.log(state.answers[0].latency_us * seen(state.answers[0]) * 1.2);
  at("slo").value = String(Math.round((1000 * (wanted - low)) / (high - low)));
}

function ranking() {
  const limit = slo();
  at("slo-value").textContent = latency(limit);
  at("slo").setAttribute("aria-valuetext", latency(limit));
  const rows = state.answers.map((answer) => {
    const factor = seen(answer), us = answer.latency_us * factor;
    const price = state.systems.find((system) => system.name === answer.system)?.usd_per_hour;
    return { answer, us, low: answer.interval_us[0] * factor, high: answer.interval_us[1] * factor, usd: price == null ? null : (price / 3600) * us };
  });
  rows.sort((one, other) => (one.us > limit) - (other.us > limit) || (one.usd ?? Infinity) - (other.usd ?? Infinity) || one.us - other.us);
  const most = 1.05 * Math.max(limit, ...rows.map((row) => row.high));
  const bars = h("div", { class: "bars" });
  for (const row of rows) {
    const meets = row.us <= limit;
    const sure = meets ? row.high <= limit : row.low > limit;
    const left = latency(Math.abs(limit - row.us));
    const verdict = `${meets ? `${left} below the limit` : `${left} above the limit`}${sure ? "" : ", not certain"}`;
    const x = (us) => (100 * us) / most;
    const picture = svg("svg", { viewBox: "0 0 100 22", height: 22, preserveAspectRatio: "none", role: "img", "aria-label": `${row.answer.system}: ${latency(row.us)}, ${verdict}` },
      svg("rect", { class: "track", width: 100, height: 12, y: 5 }),
      svg("rect", { class: meets ? "meets" : "fails", width: x(row.us), height: 12, y: 5 }),
      svg("line", { class: "whisker", x1: x(row.low), x2: x(row.high), y1: 11, y2: 11 }),
      ...[row.low, row.high].map((us) => svg("line", { class: "whisker", x1: x(us), x2: x(us), y1: 7, y2: 15 })),
      svg("line", { class: "limit", x1: x(limit), x2: x(limit), y1: 0, y2: 22 }));
    const money = row.usd == null ? "" : `, $${row.usd.toPrecision(3)} per million`;
    bars.append(h("span", { class: "label" }, row.answer.system), picture, h("span", { class: "number" }, `${latency(row.us)}: ${verdict}${money}`));
  }
  at("ranking").replaceChildren(bars);
}

function whereItGoes(answer) {
  const total = answer.layers.reduce((sum, layer) => sum + layer.share * layer.latency_us, 0) || 1;
  const cost = (layer) => (layer.share * layer.latency_us) / total;
  at("where-heading").textContent = state.answers.length > 1 ? `Where the time goes on ${answer.system}` : "Where the time goes";
  at("operators").replaceChildren(grouped(answer.layers, cost, (layer) => layer.op_type, 8));
  const stages = 8;
  const stage = new Map(answer.layers.map((layer, place) => [layer, Math.floor((place * stages) / answer.layers.length)]));
  const name = (number) => {
    const [first, last] = [Math.ceil((number * answer.layers.length) / stages) + 1, Math.ceil(((number + 1) * answer.layers.length) / stages)];
    return first < last ? `layers ${first} to ${last}` : `layer ${first}`;
  };
  at("stages").replaceChildren(grouped(answer.layers, cost, (layer) => name(stage.get(layer)), stages, false));
  at("strip").replaceChildren(profile(answer.layers, cost));
  const slowest = [...answer.layers].sort((one, other) => cost(other) - cost(one)).slice(0, state.all ? undefined : SHOWN);
  fill(at("layers"), [["Layer"], ["Operator"], ["Latency", "number"], ["Share", "number"], ["Interval", "number"], ["Source"]],
    slowest.map((layer) => [[layer.name, "name"], [layer.op_type], [latency(layer.latency_us), "number"], [part(cost(layer)), "number"],
      [`${latency(layer.interval_us[0])} to ${latency(layer.interval_us[1])}`, "number"], [h("span", {}, h("i", { class: layer.source }), layer.source)]]));
  at("more").hidden = answer.layers.length <= SHOWN;
  at("more").textContent = state.all ? "Show only the slowest layers" : `Show all ${answer.layers.length} layers`;
}

// A share of the latency; what is there is never shown as nothing.
const part = (share) => (share > 0 && share < 0.0005 ? "< 0.1%" : percent(share, 1));

function grouped(layers, cost, key, most, sorted = true) {
  const groups = new Map();
  for (const layer of layers) {
    const group = groups.get(key(layer)) || { count: 0, share: 0, sources: {} };
    group.count += 1;
    group.share += cost(layer);
    group.sources[layer.source] = (group.sources[layer.source] || 0) + cost(layer);
    groups.set(key(layer), group);
  }
  let rows = [...groups];
  if (sorted) rows.sort(([, one], [, other]) => other.share - one.share);
  if (rows.length > most) {
    const rest = rows.splice(most - 1).map(([, group]) => group);
    const sources = {};
    for (const group of rest) for (const [source, share] of Object.entries(group.sources)) sources[source] = (sources[source] || 0) + share;
    rows.push(["others", { count: rest.reduce((sum, group) => sum + group.count, 0), share: rest.reduce((sum, group) => sum + group.share, 0), sources }]);
  }
  const widest = Math.max(...rows.map(([, group]) => group.share)) || 1;
  const bars = h("div", { class: "bars" });
  for (const [name, group] of rows) {
    const parts = SOURCES.filter((source) => group.sources[source]).map((source) => [group.sources[source] / widest, source, `${source} ${percent(group.sources[source], 1)}`]);
    bars.append(h("span", { class: "label" }, sorted ? `${name} × ${group.count}` : name), stacked(parts, `${name}: ${part(group.share)} of the latency`),
      h("span", { class: "number" }, part(group.share)));
  }
  return bars;
}

function profile(layers, cost) {
  const height = 84, most = Math.max(...layers.map(cost)) || 1, width = 1000 / layers.length;
  const picture = svg("svg", { viewBox: `0 0 1000 ${height}`, height, preserveAspectRatio: "none", role: "img",
    "aria-label": `Costs of ${layers.length} layers in order of execution; the table below lists the slowest` });
  picture.append(svg("rect", { class: "track", width: 1000, height: 1, y: height - 1 }));
  layers.forEach((layer, place) => {
    const tall = Math.max(1, (cost(layer) / most) * height);
    const bar = svg("rect", { class: layer.source, x: place * width, y: height - tall, width: Math.max(0.5, width - Math.min(2, 0.2 * width)), height: tall });
    bar.append(svg("title", {}, `${layer.name} (${layer.op_type}): ${latency(layer.latency_us)}, ${percent(cost(layer), 1)}, ${layer.source}`));
    picture.append(bar);
  });
  return picture;
}

function trust(answer) {
  const [low, high] = answer.interval_us;
  const words = [
    `On a quiet machine, the latency is between ${latency(low)} and ${latency(high)} with a probability of ${percent(answer.interval_level)}.`,
    answer.coverage.measured > 0.9995 ? "Every layer of this model was measured on this system." :
      `${percent(answer.coverage.measured)} of the latency comes from layers that were measured on this system, ${percent(answer.coverage.predicted)} from layers whose latency was predicted.`,
  ];
  if (answer.coverage.extrapolated > 0) words.push(`${percent(answer.coverage.extrapolated, 1)} comes from layers unlike any that were measured; these are the least certain.`);
  if (answer.predictor.version !== "none") words.push(`What was not measured was predicted by the regressor ${answer.predictor.name}, version ${answer.predictor.version}.`);
  at("trust").replaceChildren(h("ul", { class: "words" }, ...[...words, ...answer.warnings].map((text) => h("li", {}, text))));
}

function programs(answer) {
  const { graph, names } = state.model;
  const known = { model: answer.digest, name: sentName(), system: answer.system, ...(graph ? {} : optionsOf()) };
  const quoted = JSON.stringify(known).replaceAll("'", "'\\''");
  const headers = ["-H 'content-type: application/json'"];
  if (hasToken()) headers.unshift('-H "Authorization: Bearer $COSTMODEL_TOKEN"');
  at("curl").textContent = [`curl ${addressOf("v1/predict")}`, ...headers, `-d '${quoted}'`].join(" \\\n  ");
  at("json").textContent = JSON.stringify(answer.document, null, 1);
  at("again-note").textContent = [
    hasToken() ? "Put your token into the environment variable COSTMODEL_TOKEN." : "",
    names ? "The service does not know the names in your file: it answers with numbers instead." : "",
  ].join(" ").trim();
}

function say(text, problem = false) {
  at("status").textContent = text;
  at("status").classList.toggle("problem", problem);
}

// Wiring

at("file").addEventListener("change", (event) => take(event.target.files[0]));
for (const kind of ["dragover", "dragleave", "drop"])
  at("drop").addEventListener(kind, (event) => {
    event.preventDefault();
    at("drop").classList.toggle("over", kind === "dragover");
    if (kind === "drop") take(event.dataTransfer.files[0]);
  });
for (const id of ["batch", "shapes", "values"]) at(id).addEventListener("change", predict);
at("ask").addEventListener("submit", (event) => { event.preventDefault(); predict(); });
at("slo").addEventListener("input", ranking);
at("quantile").addEventListener("change", ranking);
at("more").addEventListener("click", () => { state.all = !state.all; whereItGoes(state.answers[state.shown]); });
for (const button of document.querySelectorAll("[data-copy]"))
  button.addEventListener("click", async () => {
    await navigator.clipboard?.writeText(at(button.dataset.copy).textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
start();
examples();
