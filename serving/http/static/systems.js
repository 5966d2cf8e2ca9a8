import { Problem, askAll, askForToken, fill, h, percent } from "./common.js";

const at = (id) => document.getElementById(id);

async function start() {
  try {
    const [systems, regressors] = await Promise.all([askAll("v1/systems", "systems"), askAll("v1/regressors", "regressors")]);
    at("status").textContent = systems.length ? `${systems.length} system${systems.length > 1 ? "s" : ""}.` : "Nothing has been measured yet. Run costmodel bench on a machine, or import results.";
    at("systems").replaceChildren(...systems.map(card));
    fill(at("regressors"), [["System"], ["State"], ["Error", "number"], ["Rows", "number"], ["Regressor"], ["Age"], ["Version"]],
      regressors.map((one) => [[one.system, "name"], [badge(one)], [one.model_mape == null ? "–" : percent(one.model_mape, 1), "number"],
        [one.rows == null ? "–" : one.rows.toLocaleString("en"), "number"], [one.name || "–"], [age(one.age_s)], [one.version]]));
  } catch (problem) {
    if (problem instanceof Problem && problem.status === 401) askForToken(start);
    at("status").textContent = problem.message;
    at("status").classList.add("problem");
  }
}

function badge(one) {
  if (!one.usable) return h("span", { class: "badge bad" }, "cannot be used");
  return one.champion ? h("span", { class: "badge good" }, "champion") : h("span", { class: "badge plain" }, "not in use");
}

function age(seconds) {
  if (seconds == null) return "–";
  const [unit, length] = [["day", 86400], ["hour", 3600], ["minute", 60]].find(([, length]) => seconds >= length) || ["minute", 60];
  const count = Math.round(seconds / length);
  return `${count} ${unit}${count === 1 ? "" : "s"}`;
}

function card(system) {
  const { accuracy, drift, host, settings } = system;
  const facts = [
    ["Measurements", system.measurements.toLocaleString("en")],
    ["Regressor", system.champion ? system.champion.name : "none"],
    ["Error on new families", accuracy?.mape == null ? "unknown" : percent(accuracy.mape, 1)],
    ["Models within 10%", accuracy?.within_10pct == null ? "unknown" : percent(accuracy.within_10pct)],
    ["Inside the interval", accuracy?.interval_coverage == null ? "unknown" : percent(accuracy.interval_coverage)],
    ["Rank correlation", accuracy?.kendall_tau == null ? "unknown" : accuracy.kendall_tau.toFixed(2)],
  ];
  const words = drift.observations && drift.ratio != null
    ? `Latencies that users reported are ${drift.ratio.toFixed(2)} times the predicted ones (${drift.observations} observation${drift.observations === 1 ? "" : "s"} of ${drift.models} model${drift.models === 1 ? "" : "s"} from ${drift.owners} user${drift.owners === 1 ? "" : "s"}); ${percent(drift.covered)} were inside the interval.`
    : "No latency has been reported for this system yet.";
  const state = drift.observations ? h("span", { class: `badge ${drift.drifted ? "bad" : drift.judged ? "good" : ""}` }, drift.drifted ? "drifted" : drift.judged ? "no drift" : "too few to tell") : null;
  const machine = host ? `${host.model_name || host.vendor}, ${host.physical_cores} cores` : "unknown hardware";
  const price = system.usd_per_hour == null ? "" : `, $${system.usd_per_hour} an hour`;
  return h("section", { class: "card" },
    h("h2", {}, system.name, " ", state),
    h("p", { class: "quiet" }, `${machine}, ${system.runtime} ${system.runtime_version}, ${settings.threads} thread${settings.threads > 1 ? "s" : ""}${price}`),
    h("dl", { class: "facts" }, ...facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
    h("p", { class: "quiet" }, words),
    ...system.warnings.map((text) => h("p", { class: "quiet" }, h("span", { class: "badge bad" }, "warning"), ` ${text}`)));
}

start();
