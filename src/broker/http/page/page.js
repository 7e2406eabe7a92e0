// The page for operators. It asks the broker that served it, and shows texts of clients as texts only.
"use strict";

const PATIENCE = 35000; // milliseconds to wait for an answer; the broker gives up after 30 s
const INTERVAL = 2000; // milliseconds between two looks at the metrics
const LISTS = 3; // looks at the metrics for one look at the lists
const POINTS = 90; // of a chart: three minutes
const MOST_ROWS = 500; // of a table
const NAMES = { pulsar: "Pulsar", mqtt: "MQTT", tubemq: "TubeMQ" };
const USUAL = "persistent://public/default/";

const $ = (id) => document.getElementById(id);
const state = { token: sessionStorage.getItem("token"), paused: false, looks: 0, before: null, history: new Map(), figures: null };

// ---- what is asked

class Refused extends Error {
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

async function ask(method, path, body) {
  const headers = state.token ? { Authorization: `Bearer ${state.token}` } : {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, {
    method, headers, cache: "no-store", signal: AbortSignal.timeout(PATIENCE),
    body: body === undefined ? undefined : JSON.stringify(body),
  }).catch((error) => {
    throw new Error(method === "GET" ? error.message : `there was no answer, but it may have been done (${error.message})`);
  });
  if (answer.ok) return answer;
  const text = await answer.text();
  let reason = text;
  try { reason = JSON.parse(text).reason ?? text; } catch { /* not JSON */ }
  throw new Refused(answer.status, reason || `HTTP ${answer.status}`);
}

const json = async (path) => (await ask("GET", path)).json();

// ---- metrics in the format of Prometheus

function parsed(text) {
  const samples = [];
  for (const line of text.split("\n")) {
    if (!line || line.startsWith("#")) continue;
    const found = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!found) continue;
    const labels = {};
    for (const [, name, value] of (found[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) {
      labels[name] = value.replace(/\\(.)/g, (_, letter) => (letter === "n" ? "\n" : letter));
    }
    samples.push({ name: found[1], labels, value: Number(found[3]) });
  }
  return samples;
}

function taken(text) {
  const figures = { at: performance.now(), single: {}, protocols: new Map(), topics: new Map() };
  for (const { name, labels, value } of parsed(text)) {
    const short = name.replace(/^forebay_(broker|topic|subscription)_/, "");
    if (name.startsWith("forebay_subscription_")) {
      const topic = topicOf(figures, labels);
      const key = labels.subscription;
      if (!topic.subscriptions.has(key)) topic.subscriptions.set(key, {});
      topic.subscriptions.get(key)[short] = value;
    } else if (name.startsWith("forebay_topic_")) {
      topicOf(figures, labels)[short] = value;
    } else if (labels.protocol !== undefined) {
      if (!figures.protocols.has(labels.protocol)) figures.protocols.set(labels.protocol, {});
      figures.protocols.get(labels.protocol)[short] = value;
    } else if (name === "forebay_broker_info") {
      Object.assign(figures.single, labels);
    } else {
      figures.single[short] = value;
    }
  }
  return figures;
}

const keyOf = (...parts) => JSON.stringify(parts);

function topicOf(figures, labels) {
  const key = keyOf(labels.protocol, labels.topic);
  if (!figures.topics.has(key)) figures.topics.set(key, { protocol: labels.protocol, name: labels.topic, subscriptions: new Map() });
  return figures.topics.get(key);
}

const rate = (now, before, seconds) => (before === undefined ? 0 : Math.max(0, now - before) / seconds);

// ---- words

const number = (value) => Math.round(value ?? 0).toLocaleString("en");
const count = (value, word) => `${number(value)} ${word}${Math.round(value ?? 0) === 1 ? "" : "s"}`;
const perSecond = (value) => (value >= 100 || value === Math.round(value) ? number(value) : value.toFixed(1));

function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) { value /= 1024; at += 1; }
  return `${at === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[at]}`;
}

function span(seconds) {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} days`;
}

const shortName = (name) => (name.startsWith(USUAL) ? name.slice(USUAL.length) : name);

// ---- elements

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "onclick") made.addEventListener("click", value);
    else if (value !== false && value !== undefined) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const cell = (text, kind = "") => element("td", kind ? { class: kind } : {}, text ?? "");
const button = (text, label, onclick) => element("button", { type: "button", "aria-label": label, onclick }, text);

// Rows are replaced only if they differ, so that the keyboard's place and a selection stay.
function fill(table, rows, empty) {
  const body = table.tBodies[0];
  const columns = table.tHead.rows[0].cells.length;
  if (rows.length === 0) rows = [["empty", empty, () => element("tr", {}, element("td", { colspan: columns, class: "empty" }, empty))]];
  const wanted = new Set(rows.slice(0, MOST_ROWS).map(([key]) => key));
  // Those first: rows that stay need not be moved then, and keep the focus.
  [...body.rows].filter((row) => !wanted.has(row.dataset.key)).forEach((row) => row.remove());
  const old = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  let place = body.firstElementChild;
  for (const [key, content, make] of rows.slice(0, MOST_ROWS)) {
    const text = JSON.stringify(content);
    let row = old.get(key);
    if (row && row.dataset.content === text) {
      old.delete(key);
    } else {
      const made = make();
      made.dataset.key = key;
      made.dataset.content = text;
      if (row) {
        const focused = row.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
        if (place === row) place = made;
        row.replaceWith(made);
        old.delete(key);
        if (focused) [...made.querySelectorAll("button")].find((one) => one.getAttribute("aria-label") === focused)?.focus();
      }
      row = made;
    }
    if (row === place) place = place.nextElementSibling;
    else body.insertBefore(row, place);
  }
  old.forEach((row) => row.remove());
}

let saidTimer;
function say(text, bad = false) {
  $("said").textContent = text;
  $("said").className = bad ? "bad" : "";
  clearTimeout(saidTimer);
  saidTimer = setTimeout(() => { $("said").textContent = ""; }, bad ? 15000 : 5000);
}

// A dialog; gives whether it was confirmed.
function dialog(title, body, { ok = "OK", danger = false, cancel = true } = {}) {
  const box = $("dialog");
  // Its question stays: an answer that comes late does not take its place.
  if (box.open) return Promise.resolve(false);
  box.dataset.danger = danger;
  $("dialog-title").textContent = title;
  $("dialog-body").replaceChildren(...body);
  $("dialog-ok").textContent = ok;
  $("dialog-ok").className = danger ? "danger" : "";
  $("dialog-cancel").hidden = !cancel;
  box.returnValue = "cancel";
  box.showModal();
  // What cannot be undone is not a key press away.
  (box.querySelector("input, textarea, select") ?? (danger ? $("dialog-cancel") : $("dialog-ok"))).focus();
  return new Promise((done) => box.addEventListener("close", () => done(box.returnValue === "ok"), { once: true }));
}

async function change(question, explanation, ok, action, success) {
  if (!(await dialog(question, [element("p", {}, explanation)], { ok, danger: true }))) return;
  await act(action, success);
}

async function act(action, success) {
  try {
    await action();
    say(success);
    await look(true);
  } catch (error) {
    say(error.message, true);
  }
}

// ---- the parts of the page

function chart(points) {
  const high = Math.max(1, ...points.flatMap((one) => [one.in, one.out]));
  const line = (key) => points.map((one, at) => {
    const x = ((POINTS - points.length + at) / (POINTS - 1)) * 300;
    return `${at ? "L" : "M"}${x.toFixed(1)} ${(78 - (one[key] / high) * 74).toFixed(1)}`;
  }).join("");
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 300 80");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  for (const key of ["in", "out"]) {
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("class", key);
    path.setAttribute("d", line(key));
    svg.append(path);
  }
  return [svg, high];
}

function showTraffic(now, before) {
  const seconds = before ? (now.at - before.at) / 1000 : 1;
  const cards = [];
  for (const [protocol, figures] of now.protocols) {
    if (protocol === "http") continue;
    const was = before?.protocols.get(protocol) ?? {};
    const of = (name) => rate(figures[name], was[name], seconds);
    const point = { in: of("received_messages_total"), out: of("sent_messages_total") };
    const points = state.history.get(protocol) ?? [];
    if (before) points.push(point);
    state.history.set(protocol, points.slice(-POINTS));
    const [svg, high] = chart(state.history.get(protocol));
    const facts = [count(figures.connections, "connection")];
    if (protocol === "mqtt") facts.push(count(figures.sessions, "session"), `${number(figures.retained_messages)} retained`);
    else facts.push(count(figures.topics, "topic"), count(figures.producers, "producer"), count(figures.consumers, "consumer"));
    const losses = [];
    if (figures.dropped_messages_total) losses.push(`${number(figures.dropped_messages_total)} dropped`);
    if (figures.denied_requests_total) losses.push(`${number(figures.denied_requests_total)} denied`);
    if (figures.connections_refused_total) losses.push(`${count(figures.connections_refused_total, "connection")} refused`);
    cards.push(element("article", { class: "card", "data-protocol": protocol },
      element("h3", {}, NAMES[protocol] ?? protocol),
      element("p", { class: "now" },
        element("span", { class: "key in" }, `${perSecond(point.in)} in/s, ${bytes(of("received_bytes_total"))}/s`),
        element("span", { class: "key out" }, `${perSecond(point.out)} out/s, ${bytes(of("sent_bytes_total"))}/s`)),
      svg,
      element("p", {}, `Three minutes, top of the chart ${perSecond(high)}/s`),
      element("p", {}, facts.join(", ")),
      losses.length ? element("p", {}, losses.join(", ")) : null));
  }
  $("traffic").replaceChildren(...cards);
}

function showFacts(now) {
  const said = now.single;
  $("version").textContent = said.version ?? "";
  const parts = [`up ${span(said.uptime_seconds ?? 0)}`, `durability ${said.durability}`,
    `store ${bytes(said.store_bytes ?? 0)} of ${bytes(said.store_limit_bytes ?? 0)}`];
  if (said.disk_free_bytes !== undefined) parts.push(`disk free ${bytes(said.disk_free_bytes)}`);
  $("facts").textContent = parts.join(" · ");
}

function showTopics(now, before) {
  const seconds = before ? (now.at - before.at) / 1000 : 1;
  const wanted = $("topics-filter").value.toLowerCase();
  const rows = [];
  let shown = 0;
  for (const [key, topic] of now.topics) {
    const fits = (name) => name.toLowerCase().includes(wanted);
    const all = [...topic.subscriptions];
    const found = fits(topic.name) ? all : all.filter(([name]) => fits(name));
    if (!fits(topic.name) && found.length === 0) continue;
    shown += 1;
    const coming = perSecond(rate(topic.received_messages_total, before?.topics.get(key)?.received_messages_total, seconds));
    const subscriptions = found.length ? found : [[null, null]];
    subscriptions.forEach(([name, figures], at) => {
      const content = [at, coming, topic.entries, topic.producers, figures];
      rows.push([keyOf(key, name), content, () => element("tr", {},
        cell(at === 0 ? shortName(topic.name) : "", "name"), cell(name ?? "", "name"),
        cell(at === 0 ? coming : "", "number"), cell(at === 0 ? number(topic.entries) : "", "number"),
        cell(figures ? number(figures.backlog_entries) : "", "number"),
        cell(figures ? number(figures.unacknowledged_messages) : "", "number"),
        cell(at === 0 ? number(topic.producers) : "", "number"), cell(figures ? number(figures.consumers) : "", "number"),
        element("td", {}, ...actions(topic, name)))]);
    });
  }
  const omitted = now.single.topics_omitted ?? 0;
  $("topics-count").textContent = `${number(shown)} of ${count(now.topics.size + omitted, "topic")}` +
    (rows.length > MOST_ROWS ? `, the first ${MOST_ROWS} rows` : "") +
    (omitted ? `; ${number(omitted)} have no figures here, there are too many` : "");
  fill($("topics"), rows, wanted ? "No topic or subscription matches." : "There are no topics yet.");
}

// ---- topics and subscriptions

// What can be done with a topic and one of its subscriptions, or with a topic that has none.
function actions(topic, name) {
  const [read, reset] = topic.protocol === "tubemq" ? [peekTubemq, resetTubemq] : [peekPulsar, resetPulsar];
  if (topic.name.startsWith("non-persistent://")) return [];
  if (name === null) return [button("Peek", `Look into ${shortName(topic.name)}`, () => peekTopic(topic.name, read))];
  const of = `${name} of ${shortName(topic.name)}`;
  const made = [
    button("Peek", `Look into ${of}`, () => peek(topic.name, name, read)),
    button("Reset…", `Reset ${of}`, () => reset(topic.name, name)),
  ];
  if (topic.protocol === "pulsar") {
    made.push(button("Skip all…", `Skip all messages of ${of}`, () => change(`Skip the backlog of ${name}?`,
      `The subscription ${name} of ${topic.name} will not get the messages that wait for it. This cannot be undone, but the subscription can be reset to an earlier time while the messages are kept.`,
      "Skip all", () => ask("POST", adminPath(topic.name, "subscription", name, "skip_all")), `The backlog of ${name} has been skipped.`)));
  }
  return made;
}

const none = (words) => element("p", {}, words);

// The next messages of a subscription.
async function peek(topic, name, read) {
  try {
    const found = await read(topic, { subscription: name });
    await dialog(`Next messages of ${name}`, found.length ? found : [none("No message waits for the subscription.")], { ok: "Close", cancel: false });
  } catch (error) {
    say(error.message, true);
  }
}

// The first or the last messages of a topic without a subscription.
async function peekTopic(topic, read) {
  const place = element("select", {}, element("option", { value: "latest" }, "the latest messages"), element("option", { value: "earliest" }, "the earliest messages"));
  const shown = element("div", { role: "region", "aria-live": "polite", "aria-label": "Messages" });
  const show = async () => {
    const from = place.value;
    let found;
    try {
      found = await read(topic, { from });
    } catch (error) {
      found = [none(error.message)];
    }
    // Another choice may have been made meanwhile.
    if (from === place.value) shown.replaceChildren(...(found.length ? found : [none("The topic has no messages.")]));
  };
  place.addEventListener("change", show);
  await show();
  await dialog(`Messages of ${shortName(topic)}`, [element("label", {}, "Show ", place), shown], { ok: "Close", cancel: false });
}

// Asks where a subscription goes: a choice of [value, words, label, usual], of which a label stands for a field. null if it stays.
async function askForPlace(topic, name, choices, more = []) {
  const choice = element("select", {}, ...choices.map(([value, words]) => element("option", { value }, words)));
  const inputs = new Map(choices.filter(([, , label]) => label).map(([value, , label, usual]) => {
    const input = element("input", { type: "text", value: usual, autocomplete: "off", spellcheck: "false" });
    return [value, [input, element("label", {}, `${label} `, input)]];
  }));
  const choose = () => { for (const [value, [, label]] of inputs) label.hidden = value !== choice.value; };
  choice.addEventListener("change", choose);
  choose();
  const body = [
    element("p", {}, `${name} of ${topic} is moved, and its consumers go on from there: they receive again what is behind that place and still stored, and nothing of what is before it.`),
    element("label", {}, "Reset to ", choice), ...[...inputs.values()].map(([, label]) => label), ...more,
  ];
  if (!(await dialog(`Reset ${name}`, body, { ok: "Reset", danger: true }))) return null;
  return [choice.value, inputs.get(choice.value)?.[0].value.trim() ?? ""];
}

// A whole number that was typed in.
function whole(typed, what) {
  if (!/^\d{1,15}$/.test(typed)) throw new Error(`${typed || "nothing"} is not ${what}`);
  return Number(typed);
}

// ---- Pulsar

// persistent://tenant/namespace/topic as a path of the administration.
function adminPath(topic, ...rest) {
  const [domain, name] = topic.split("://");
  const [tenant, namespace, ...local] = name.split("/");
  return ["/admin/v2", domain, ...[tenant, namespace, local.join("/"), ...rest].map(encodeURIComponent)].join("/");
}

async function partitionsOf(topic) {
  const { partitions } = await json(adminPath(topic, "partitions"));
  return partitions ? Array.from({ length: partitions }, (_, at) => `${topic}-partition-${at}`) : [topic];
}

// The n-th entry of a topic: of a subscription, or from one of its ends.
const entryPath = (part, { subscription, from }, at) => (subscription === undefined
  ? `${adminPath(part, "examinemessage")}?initialPosition=${from}&messagePosition=${at}`
  : adminPath(part, "subscription", subscription, "position", String(at)));

async function peekPulsar(topic, place) {
  const parts = [];
  for (const part of await partitionsOf(topic)) {
    for (let at = 1; at <= 5 && parts.length < 10; at += 1) {
      let answer;
      try {
        answer = await ask("GET", entryPath(part, place, at));
      } catch (error) {
        // There are no more, or there are none.
        if (error.status === 404 || error.status === 412) break;
        throw error;
      }
      const found = await entryMessages(answer, part === topic ? "" : part.slice(topic.length + "-partition-".length));
      parts.push(...(place.from === "latest" ? found.reverse() : found).slice(0, 10 - parts.length));
    }
  }
  return parts;
}

// The message in an answer, or those of its batch.
async function entryMessages(answer, partition) {
  const header = (key) => answer.headers.get(`X-Pulsar-${key}`);
  const facts = [["Message", header("Message-ID")], ["Partition", partition], ["Published", header("publish-time")], ["Producer", header("producer-name")]];
  const data = new Uint8Array(await answer.arrayBuffer());
  const messages = batch(data, Number(header("num-batch-message")));
  if (messages === null) {
    return [message([...facts, ["Key", header("partition-key")], ...named(JSON.parse(header("PROPERTY") ?? "{}"))], data)];
  }
  return messages.map((one, index) => message(
    [...facts, ["In its batch", `${index + 1} of ${messages.length}`], ["Key", one.key], ...named(one.properties)], one.payload));
}

const named = (properties) => Object.entries(properties).map(([key, value]) => [`Property ${key}`, value]);

// Fields of a message of protobuf: their numbers with whole numbers or bytes.
function* fields(data) {
  let at = 0;
  const varint = () => {
    let value = 0;
    for (let scale = 1; at < data.length; scale *= 128) {
      const one = data[at++];
      value += (one & 127) * scale;
      if (one < 128) return value;
    }
    throw new RangeError("cut short");
  };
  while (at < data.length) {
    const tag = varint();
    if ((tag & 7) === 0) yield [tag >>> 3, varint()];
    else if ((tag & 7) === 2) {
      const length = varint();
      yield [tag >>> 3, data.subarray(at, at + length)];
      at += length;
    } else throw new RangeError("not a type that batches have");
  }
}

// The messages of a batch: each has the size of its SingleMessageMetadata, that metadata, and its payload. null if it is none, or
// cannot be read: it may be encrypted.
function batch(data, expected) {
  if (!expected) return null;
  const words = new TextDecoder();
  const messages = [];
  try {
    const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
    for (let at = 0; messages.length < expected;) {
      const size = view.getUint32(at);
      if (at + 4 + size > data.length) return null;
      const found = { key: "", properties: {}, size: 0 };
      for (const [field, value] of fields(data.subarray(at + 4, at + 4 + size))) {
        if (field === 1) {
          const pair = Object.fromEntries(fields(value));
          found.properties[words.decode(pair[1])] = words.decode(pair[2]);
        } else if (field === 2) found.key = words.decode(value);
        else if (field === 3) found.size = value;
      }
      at += 4 + size + found.size;
      if (at > data.length) return null;
      messages.push({ ...found, payload: data.subarray(at - found.size, at) });
    }
  } catch (error) {
    if (error instanceof RangeError) return null;
    throw error;
  }
  return messages;
}

async function resetPulsar(topic, name) {
  const place = await askForPlace(topic, name, [
    ["time", "a time", "Minutes back", "60"],
    ["earliest", "the earliest message"],
    ["latest", "behind the latest message"],
    ["id", "a message", "Message id, as Peek shows it", ""],
  ]);
  if (place === null) return;
  const [kind, typed] = place;
  const path = (...rest) => adminPath(topic, "subscription", name, ...rest);
  await act(async () => {
    if (kind === "id") return resetToId(topic, name, typed);
    if (kind === "latest") return ask("POST", path("skip_all"));
    const at = kind === "earliest" ? 0 : Math.max(0, Date.now() - whole(typed, "a number of minutes") * 60000);
    return ask("POST", path("resetcursor", String(at)));
  }, `${name} has been reset.`);
}

// Ledgers tell partitions apart: the subscription moves in the one that the message is in.
async function resetToId(topic, name, typed) {
  const [ledger, entry] = /^(\d{1,15}):(\d{1,15})$/.exec(typed)?.slice(1).map(Number) ?? [];
  if (entry === undefined) throw new Error(`${typed || "nothing"} is not a message id, such as 7:0`);
  for (const part of await partitionsOf(topic)) {
    if ((await json(adminPath(part, "lastMessageId"))).ledgerId !== ledger) continue;
    await ask("POST", adminPath(part, "subscription", name, "resetcursor"), { ledgerId: ledger, entryId: entry });
    return;
  }
  throw new Error(`${topic} has no message ${typed}`);
}

// ---- TubeMQ

async function peekTubemq(topic, { subscription, from }) {
  const place = subscription === undefined ? `offset=${from}` : `group=${encodeURIComponent(subscription)}`;
  const { messages } = await json(`/forebay/v1/tubemq/peek?topic=${encodeURIComponent(topic)}&${place}&limit=10`);
  if (from === "latest") messages.reverse();
  return messages.map((one) => {
    if (one.error !== undefined) return none(`Offset ${one.offset} of partition ${one.partition}: ${one.error}`);
    const time = (ms) => (ms === null ? null : new Date(ms).toISOString());
    const facts = [["Offset", String(one.offset)], ["Partition", String(one.partition)], ["Stored", time(one.stored_ms)],
      ["Event time", time(one.event_ms)], ["Key", one.key], ["Message type", one.message_type], ...named(one.properties)];
    return message(facts, fromBase64(one.payload_base64), one.bytes);
  });
}

async function resetTubemq(topic, name) {
  const partition = element("input", { type: "text", autocomplete: "off", spellcheck: "false" });
  const place = await askForPlace(topic, name, [
    ["earliest", "the earliest message"],
    ["latest", "behind the latest message"],
    ["offset", "an offset", "Offset, as Peek shows it", ""],
  ], [element("label", {}, "Partition, empty for all of them ", partition)]);
  if (place === null) return;
  const [kind, typed] = place;
  const only = partition.value.trim();
  await act(async () => {
    const given = { topic, group: name, to: kind === "offset" ? whole(typed, "an offset") : kind };
    if (only || kind === "offset") given.partition = whole(only, "the number of a partition");
    await ask("POST", "/forebay/v1/tubemq/groups/reset", given);
  }, `${name} has been reset.`);
}

// ---- messages

function hex(data) {
  const lines = [];
  for (let at = 0; at < data.length; at += 16) {
    const part = [...data.subarray(at, at + 16)];
    const digits = part.map((one) => one.toString(16).padStart(2, "0")).join(" ");
    const letters = part.map((one) => (one >= 32 && one < 127 ? String.fromCharCode(one) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${digits.padEnd(47)}  ${letters}`);
  }
  return lines.join("\n");
}

function text(data) {
  try {
    const decoded = new TextDecoder("utf-8", { fatal: true }).decode(data);
    return /[\u0000-\u0008\u000e-\u001f]/.test(decoded) ? null : decoded;
  } catch {
    return null;
  }
}

function pretty(decoded) {
  try {
    const value = JSON.parse(decoded);
    return typeof value === "object" && value !== null ? JSON.stringify(value, null, 2) : null;
  } catch {
    return null;
  }
}

// A message with its facts, as JSON, text or hexadecimal digits, whichever it is.
function message(facts, data, length = data.length) {
  const shown = data.subarray(0, 16384);
  const decoded = text(shown);
  const forms = [["JSON", decoded === null ? null : pretty(decoded)], ["Text", decoded], ["Hex", hex(shown)]].filter(([, form]) => form !== null);
  const box = element("pre", { tabindex: "0" }, forms[0][1]);
  const choice = element("select", {}, ...forms.map(([name]) => element("option", {}, name)));
  choice.addEventListener("change", () => { box.textContent = forms[choice.selectedIndex][1]; });
  const list = element("dl");
  const cut = length > shown.length ? `${bytes(length)}, the first ${bytes(shown.length)} here` : bytes(length);
  for (const [name, value] of [...facts, ["Payload", cut]]) {
    if (value) list.append(element("dt", {}, name), element("dd", {}, value));
  }
  return element("div", {}, list, element("label", { class: "inline" }, "Shown as ", choice), box);
}

const fromBase64 = (encoded) => Uint8Array.from(atob(encoded), (letter) => letter.charCodeAt(0));

// ---- MQTT

async function showSessions() {
  const wanted = $("sessions-filter").value;
  const { total, sessions, next } = await json(`/forebay/v1/mqtt/sessions?filter=${encodeURIComponent(wanted)}`);
  $("sessions-section").hidden = false;
  $("sessions-count").textContent = `${number(sessions.length)} of ${count(total, "session")}` + (next !== null ? ", there are more: use a narrower filter" : "");
  fill($("sessions"), sessions.map((one) => {
    const where = one.connection !== null ? "connected"
      : one.ends_in_seconds !== null ? `disconnected, ends in ${span(one.ends_in_seconds)}` : "disconnected";
    const filters = one.filters.join(", ") + (one.subscriptions > one.filters.length ? ", …" : "");
    return [String(one.number), { ...one, where }, () => element("tr", {},
      cell(one.client_id, "name"), cell(one.user ?? ""), cell(where), cell(filters, "text"), cell(number(one.queued), "number"),
      cell(number(one.in_flight), "number"), cell(bytes(one.bytes), "number"),
      element("td", {}, button("Delete…", `Delete the session ${one.client_id}`, () => change(`Delete the session ${one.client_id}?`,
        "Its connection ends, its subscriptions are gone, and the messages that wait for it are lost.", "Delete",
        () => ask("DELETE", `/forebay/v1/mqtt/sessions?client_id=${encodeURIComponent(one.client_id)}`), `The session ${one.client_id} has been deleted.`))))];
  }), wanted ? "No session matches." : "There are no sessions.");
}

async function showRetained() {
  const filter = $("retained-filter").value || "#";
  const { total, messages, next } = await json(`/forebay/v1/mqtt/retained?filter=${encodeURIComponent(filter)}`);
  $("retained-section").hidden = false;
  $("retained-count").textContent = `${number(messages.length)} of ${count(total, "message")}` + (next !== null ? ", there are more: use a narrower filter" : "");
  fill($("retained"), messages.map((one) => {
    const data = fromBase64(one.payload_base64);
    const short = (text(data.subarray(0, 80)) ?? hex(data.subarray(0, 16)).slice(8, 55)).slice(0, 80);
    const when = new Date(one.received_ms).toLocaleString();
    return [one.topic, one, () => element("tr", {},
      cell(one.topic, "name"), cell(one.qos, "number"), cell(number(one.bytes), "number"), cell(when), cell(short, "text"),
      element("td", {},
        button("View", `View ${one.topic}`, () => dialog(one.topic, [message([["Received", when], ["QoS", String(one.qos)]], data, one.bytes)], { ok: "Close", cancel: false })),
        button("Delete…", `Delete the retained message of ${one.topic}`, () => change(`Delete the retained message of ${one.topic}?`,
          "New subscribers will not get it any more.", "Delete",
          () => ask("DELETE", `/forebay/v1/mqtt/retained?topic=${encodeURIComponent(one.topic)}`), `The message of ${one.topic} has been deleted.`))))];
  }), filter === "#" ? "There are no retained messages." : "No retained message matches the filter.");
}

// ---- one message of any protocol

async function publish() {
  const there = [...state.figures[0].protocols.keys()].filter((one) => one in NAMES);
  const protocol = element("select", {}, ...there.map((one) => element("option", { value: one }, NAMES[one])));
  const topic = element("input", { type: "text", autocomplete: "off", spellcheck: "false" });
  const payload = element("textarea", { rows: "6" });
  const key = element("input", { type: "text", autocomplete: "off", spellcheck: "false" });
  const qos = element("select", {}, ...["0", "1", "2"].map((one) => element("option", {}, one)));
  const retain = element("input", { type: "checkbox" });
  const ofMqtt = [element("label", { class: "inline" }, "QoS ", qos), element("label", { class: "inline" }, retain, " Retain")];
  const ofOthers = [element("label", {}, "Key ", key)];
  const choose = () => {
    for (const part of ofMqtt) part.hidden = protocol.value !== "mqtt";
    for (const part of ofOthers) part.hidden = protocol.value === "mqtt";
  };
  protocol.addEventListener("change", choose);
  choose();
  const body = [element("label", {}, "Protocol ", protocol), element("label", {}, "Topic ", topic),
    element("label", {}, "Payload ", payload), ...ofOthers, ...ofMqtt];
  if (!(await dialog("Publish a message", body, { ok: "Publish" }))) return;
  const given = protocol.value === "mqtt"
    ? { topic: topic.value, payload: payload.value, qos: qos.selectedIndex, retain: retain.checked }
    : { topic: topic.value, payload: payload.value, key: key.value || undefined };
  try {
    const answer = await (await ask("POST", `/forebay/v1/${protocol.value}/publish`, given)).json();
    const where = answer.message_id ? `: ${answer.message_id}` : "";
    say(answer.matched === false ? `Published to ${topic.value}; it has no subscriber.` : `Published to ${topic.value}${where}.`);
    await look(true);
  } catch (error) {
    say(error.message, true);
  }
}

// ---- connections

async function showClients() {
  const wanted = $("clients-filter").value;
  const { total, clients } = await json(`/forebay/v1/clients?filter=${encodeURIComponent(wanted)}`);
  const shown = Math.min(clients.length, MOST_ROWS);
  $("clients-count").textContent = count(total, "connection") + (shown < total ? `, ${number(shown)} of them here: use a narrower filter` : "");
  fill($("clients"), clients.map((one) => {
    const age = span(one.seconds);
    const who = one.name || one.address;
    return [keyOf(one.protocol, one.number), { ...one, seconds: age }, () => element("tr", {},
      cell(one.protocol), cell(one.address), cell(one.user ?? ""), cell(one.name, "name"), cell(number(one.producers), "number"),
      cell(number(one.consumers), "number"), cell(age),
      element("td", {}, button("End…", `End the connection of ${who}`, () => change(`End the connection of ${who}?`,
        "Most clients connect again at once. To keep one out, take away its user or its permissions.", "End",
        () => ask("DELETE", `/forebay/v1/clients/${one.protocol}/${one.number}`), `The connection of ${who} has ended.`))))];
  }), wanted ? "No connection matches." : "There are no connections.");
}

// ---- looking again and again

function showState(good, words) {
  if ($("state").textContent !== words) $("state").textContent = words;
  $("state").className = good ? "good" : "bad";
}

async function ready() {
  try {
    await ask("GET", "/readyz");
    return "";
  } catch (error) {
    if (error.status !== 503) throw error;
    const answer = await fetch("/readyz", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
    const report = await answer.json();
    return Object.entries(report).filter(([name, value]) => name !== "ready" && value !== "ok").map(([name, value]) => `${name}: ${value}`).join("; ");
  }
}

async function askForToken(why) {
  const field = element("input", { type: "password", autocomplete: "off" });
  const given = await dialog("This broker asks for a token", [element("p", {}, why),
    element("label", {}, "Token, as forebay token create prints it ", field),
    element("p", {}, "It is kept until this tab is closed.")], { ok: "Use it" });
  if (!given || !field.value.trim()) return false;
  state.token = field.value.trim();
  sessionStorage.setItem("token", state.token);
  return true;
}

// A list. What is wrong with it is said beside it: the others go on.
async function list(name, show) {
  try {
    await show();
  } catch (error) {
    if (error.status === undefined || error.status === 401) throw error;
    $(`${name}-count`).textContent = error.message;
    fill($(name), [], error.status === 403 ? "Only for operators." : "There is no list.");
  }
}

let looking = false;
async function look(lists = false) {
  if (looking) return;
  looking = true;
  try {
    const wrong = await ready();
    const now = taken(await (await ask("GET", "/metrics")).text());
    $("token").hidden = state.token === null;
    showState(!wrong, wrong ? `Not ready: ${wrong}` : "Ready");
    showFacts(now);
    showTraffic(now, state.before);
    showTopics(now, state.before);
    state.figures = [now, state.before];
    $("publish").disabled = false;
    state.before = now;
    state.looks += 1;
    if (lists || state.looks % LISTS === 1) {
      await list("clients", showClients);
      if (now.protocols.has("mqtt")) {
        await list("sessions", showSessions);
        await list("retained", showRetained);
      }
    }
  } catch (error) {
    if (error.status === 401) {
      showState(false, "A token is needed");
      $("token").hidden = false;
      if (!$("dialog").open && state.refused !== state.token) {
        state.refused = state.token;
        if (await askForToken(state.token ? "The token was refused: it is malformed, expired, or of another key." : "Ask its operator for one.")) {
          looking = false;
          await look(true);
        }
      }
    } else if (error.status === 403) {
      showState(false, `Not allowed: ${error.message}`);
    } else {
      showState(false, `No answer since ${new Date(performance.timeOrigin + (state.before?.at ?? performance.now())).toLocaleTimeString()}: ${error.message}`);
    }
  } finally {
    looking = false;
  }
}

document.addEventListener("DOMContentLoaded", () => {
  $("pause").addEventListener("click", () => {
    state.paused = !state.paused;
    $("pause").setAttribute("aria-pressed", String(state.paused));
    $("pause").textContent = state.paused ? "Resume" : "Pause";
  });
  $("token").addEventListener("click", async () => {
    if (await askForToken("Replace the current token.")) await look(true);
  });
  $("topics-filter").addEventListener("input", () => state.figures && showTopics(...state.figures));
  for (const [name, show] of [["clients", showClients], ["sessions", showSessions], ["retained", showRetained]]) {
    let timer;
    $(`${name}-filter`).addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => list(name, show).catch((error) => say(error.message, true)), 300);
    });
  }
  $("dialog-cancel").addEventListener("click", () => $("dialog").close("cancel"));
  // Enter in a field confirms what can be undone, and nothing else.
  $("dialog").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.target.matches("input") && $("dialog").dataset.danger === "true") event.preventDefault();
  });
  $("publish").addEventListener("click", publish);
  look(true);
  setInterval(() => { if (!state.paused && !document.hidden) look(); }, INTERVAL);
});
