// The npm client, driven from a test: each line of JSON on standard input is [verb, ...arguments], each is
// answered with {"ok": ...} or {"error": ...}. Bytes are hex. The end of standard input ends it.
"use strict";
const crypto = require("crypto");
const mqtt = require("mqtt");
const readline = require("readline");

let client = null;
let messages = [];
let waiting = null;
const events = [];

const BINARY = new Set(["correlationData", "authenticationData"]);

// Hex to bytes for what the client takes as bytes.
function opened(value, name) {
  if (Array.isArray(value)) return value.map((one) => opened(one));
  if (value !== null && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, opened(one, key)]));
  }
  return BINARY.has(name) ? Buffer.from(value, "hex") : value;
}

function closed(value) {
  if (Buffer.isBuffer(value)) return value.toString("hex");
  if (Array.isArray(value)) return value.map(closed);
  if (value !== null && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, closed(one)]));
  }
  return value;
}

function deliver() {
  if (waiting && messages.length >= waiting.count) {
    clearTimeout(waiting.timer);
    const { done, count } = waiting;
    waiting = null;
    done(messages.splice(0, count));
  }
}

// The client keeps what it could not send for later, and then says nothing.
function late() {
  return new Promise((_, failed) => setTimeout(() => failed(new Error("no answer in time")), 90_000).unref());
}

function unlessClosed(failed) {
  if (!client.connected) failed(new Error("not connected"));
  client.once("close", () => failed(new Error("the broker closed the connection")));
}

const verbs = {
  // "challenge": the password that the broker's challenges are answered with.
  connect(url, options, challenge) {
    return new Promise((done, failed) => {
      options = opened(options);
      if (options.will) options.will.payload = Buffer.from(options.will.payload || "", "hex");
      client = mqtt.connect(url, { reconnectPeriod: 0, ...options });
      client.setMaxListeners(0);
      if (challenge !== undefined && challenge !== null) {
        client.handleAuth = (packet, callback) => {
          if (packet.reasonCode === 0) {
            events.push({ event: "authenticated", data: closed(packet.properties) });
            return callback(null);
          }
          const answer = crypto.createHmac("sha256", challenge).update(packet.properties.authenticationData);
          callback(null, {
            cmd: "auth",
            reasonCode: 0x18,
            properties: {
              authenticationMethod: packet.properties.authenticationMethod,
              authenticationData: answer.digest(),
            },
          });
        };
      }
      client.on("message", (topic, payload, packet) => {
        messages.push({
          topic,
          payload: payload.toString("hex"),
          qos: packet.qos,
          retain: packet.retain,
          dup: packet.dup,
          properties: closed(packet.properties || {}),
        });
        deliver();
      });
      client.on("disconnect", (packet) => events.push({ event: "disconnect", reason: packet.reasonCode }));
      client.on("close", () => events.push({ event: "close" }));
      client.once("connect", (packet) => done({
        session_present: packet.sessionPresent,
        reason: packet.reasonCode || packet.returnCode || 0,
        properties: closed(packet.properties || {}),
      }));
      client.once("error", (error) => {
        client.on("error", () => {});
        failed(error);
      });
      client.once("close", () => failed(new Error("the broker closed the connection")));
    });
  },
  publish: (topic, payload, options) => new Promise((done, failed) => {
    unlessClosed(failed);
    client.publish(topic, Buffer.from(payload, "hex"), opened(options || {}), (error, packet) => {
      if (error) return failed(error);
      return done(packet ? packet.reasonCode || 0 : 0);
    });
  }),
  subscribe: (filters, options) => new Promise((done, failed) => {
    unlessClosed(failed);
    client.subscribe(filters, opened(options || {}), (error, granted) => {
      if (error) return failed(error);
      return done(granted.map((one) => one.qos));
    });
  }),
  unsubscribe: (filters, options) => new Promise((done, failed) => {
    client.unsubscribe(filters, opened(options || {}), (error) => (error ? failed(error) : done(null)));
  }),
  // That many messages, or as many as came in time (milliseconds).
  receive: (count, timeout) => new Promise((done) => {
    waiting = { count, done, timer: setTimeout(() => {
      waiting = null;
      done(messages.splice(0));
    }, timeout) };
    deliver();
  }),
  reauthenticate: (method, name) => new Promise((done, failed) => {
    const before = events.length;
    client._sendPacket({ cmd: "auth", reasonCode: 0x19, properties: {
      authenticationMethod: method, authenticationData: Buffer.from(name),
    } });
    const deadline = Date.now() + 5000;
    const look = setInterval(() => {
      const found = events.slice(before).find((one) => one.event === "authenticated");
      if (found || Date.now() > deadline) {
        clearInterval(look);
        if (found) done(found.data); else failed(new Error("not authenticated again"));
      }
    }, 5);
  }),
  events: async () => events,
  // Without a DISCONNECT.
  kill: async () => { client.stream.destroy(); return null; },
  end: (options) => new Promise((done) => client.end(false, opened(options || {}), () => done(null))),
};

const lines = readline.createInterface({ input: process.stdin });
let turn = Promise.resolve();
lines.on("line", (line) => {
  const [verb, ...rest] = JSON.parse(line);
  turn = turn.then(() => Promise.race([verbs[verb](...rest), late()])).then(
    (value) => ({ ok: value === undefined ? null : value }),
    (error) => ({ error: String(error.message || error), code: error.code }),
  ).then((answer) => process.stdout.write(JSON.stringify(answer) + "\n"));
});
lines.on("close", () => process.exit(0));
process.on("unhandledRejection", () => {});
