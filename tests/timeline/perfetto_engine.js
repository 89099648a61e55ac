// Perfetto's own trace processor, as its user interface has it (WebAssembly), in a pipe: node perfetto_engine.js FOLDER. Each
// request, and each reply, is a stream of TraceProcessorRpc behind its length (u32, little endian).
"use strict";
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const folder = process.argv[2];
const exit = process.exit.bind(process);

// It takes itself for a browser's worker.
globalThis.self = globalThis;
globalThis.location = {href: "file://" + folder + "/engine_bundle.js"};
globalThis.importScripts = () => {};
globalThis.WorkerGlobalScope = class {};
globalThis.XMLHttpRequest = class {
  open(_method, url) {
    this.url = url;
  }
  send() {
    const bytes = fs.readFileSync(path.join(folder, path.basename(this.url)));
    this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
    this.status = 200;
    if (this.onload) this.onload();
  }
};
globalThis.process = undefined;
console.log = console.warn = console.error = () => {};

function writeAll(bytes) {
  for (let at = 0; at < bytes.length;) at += fs.writeSync(1, bytes, at);
}
function readAll(buffer) {
  for (let at = 0; at < buffer.length;) {
    const count = fs.readSync(0, buffer, at, buffer.length - at);
    if (count === 0) exit(0);
    at += count;
  }
  return buffer;
}

let replies = [];
const port = {onmessage: null, postMessage: (bytes) => replies.push(Buffer.from(bytes))};

function serve() {
  const length = readAll(Buffer.alloc(4)).readUInt32LE();
  port.onmessage({data: new Uint8Array(readAll(Buffer.alloc(length)))});
  const reply = Buffer.concat(replies);
  replies = [];
  const head = Buffer.alloc(4);
  head.writeUInt32LE(reply.length);
  writeAll(head);
  writeAll(reply);
  setImmediate(serve);
}

vm.runInThisContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"));
globalThis.onmessage({data: port});
setTimeout(serve, 100);  // behind what it has queued for its beginning
