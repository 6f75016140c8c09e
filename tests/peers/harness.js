// A harness that somebody else wrote: grpc-js, the .proto file, and nothing of vole's code.
// node harness.js ADDRESS PROTO [FAULT]; prints "ready" when it listens. FAULT: what it does wrong, for tests.
"use strict";

const { spawn } = require("node:child_process");
const { createHash, randomUUID } = require("node:crypto");
const { mkdirSync } = require("node:fs");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const [address, proto, fault = ""] = process.argv.slice(2);
const definition = loader.loadSync(proto, { keepCase: true, longs: Number, enums: String, defaults: true, oneofs: true });
const service = grpc.loadPackageDefinition(definition).vole.harness.v1.JobHarness.service;
const descriptor = {
  id: "somebody-elses",
  version: "7",
  instance_id: randomUUID(),
  capabilities: { resumability: fault === "memory" ? "REQUIRES_MEMORY_SNAPSHOT" : "RESTART_ONLY" },
  step_kinds: ["run"],
  max_jobs: 1,
  protocol: 1,
};

class Attempt {
  constructor(call) {
    this.call = call;
    this.seq = 0;
    this.logSeq = 0;
    this.granted = () => {};
    this.cancelled = null;
    this.child = null;
  }

  event(frame) {
    this.call.write({ attempt_id: this.id, seq: ++this.seq, ...frame });
  }

  hear(frame) {
    if (frame.start) {
      this.id = frame.attempt_id;
      this.run(frame.start).then(() => this.call.end());
    } else if (frame.grant) {
      this.granted(frame.grant);
    } else if (frame.cancel) {
      this.cancelled = frame.cancel.reason;
      if (this.child) process.kill(-this.child.pid, "SIGTERM");
    }
  }

  async run(start) {
    const envelope = JSON.parse(start.plan.toString());
    const plan = JSON.parse(envelope.plan);
    mkdirSync(`${envelope.folder}/work`, { recursive: true });
    const beat = setInterval(() => this.call.write({ attempt_id: this.id, heartbeat: {} }), 1000);
    let state = "COMPLETED";
    for (const step of plan.steps) {
      const id = String(step.number);
      this.event({ intent: { step_id: id, input_digest: "", effects: "EFFECTS_UNSPECIFIED" } });
      const grant = await new Promise((resolve) => (this.granted = resolve));
      if (grant.decision !== "RUN") {
        state = "FAILED";
        break;
      }
      const result = await this.step(id, step.run, `${envelope.folder}/work`);
      this.event({ result });
      if (result.state !== "SUCCEEDED") {
        state = result.state;
        break;
      }
    }
    clearInterval(beat);
    if (fault === "no-end") return;
    this.event({ end: { state, reason: this.cancelled || "REASON_UNSPECIFIED" } });
  }

  step(id, script, cwd) {
    const started = Date.now();
    const seen = createHash("sha256");
    let bytes = 0;
    this.child = spawn("/bin/sh", ["-ec", script], { cwd, detached: true, stdio: ["ignore", "pipe", "pipe"] });
    const log = (data) => {
      this.call.write({
        attempt_id: fault === "other-attempt" ? "another@9" : this.id,
        log: { step_id: id, stream: "STDOUT", seq: ++this.logSeq, offset: bytes, data },
      });
      bytes += data.length;
      seen.update(data);
    };
    this.child.stdout.on("data", log);
    this.child.stderr.on("data", log);
    return new Promise((resolve) =>
      this.child.on("close", (code, signal) => {
        this.child = null;
        const state = this.cancelled ? "CANCELED" : code === 0 ? "SUCCEEDED" : "FAILED";
        const times = { started_unix_ms: started, finished_unix_ms: Date.now() };
        const sealed = { log_bytes: bytes, log_sha256: seen.digest("hex") };
        resolve({ step_id: id, state, exit_code: code || 0, signal: signal || "", ...sealed, ...times });
      }),
    );
  }
}

const server = new grpc.Server();
server.addService(service, {
  Describe: (_call, answer) => {
    if (fault !== "silent") answer(null, descriptor);
  },
  Run: (call) => {
    if (fault === "silent") return;
    const attempt = new Attempt(call);
    call.on("data", (frame) => attempt.hear(frame));
    call.on("error", () => {});
    if (fault !== "no-hello") call.write({ hello: { descriptor } });
    else call.end();
  },
  PushBlob: (_call, answer) => answer({ code: grpc.status.UNIMPLEMENTED, details: "no blobs" }),
  FetchBlob: (call) => call.emit("error", { code: grpc.status.UNIMPLEMENTED, details: "no blobs" }),
});
server.bindAsync(address, grpc.ServerCredentials.createInsecure(), (error) => {
  if (error) throw error;
  process.stdout.write("ready\n");
});
