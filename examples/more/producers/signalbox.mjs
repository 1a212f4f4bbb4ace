// Enqueues jobs for Signalbox from Node. It needs ioredis and docs/enqueue.lua: copy both files, and say where the script is.
// docs/wire.md describes the call.
//
//   const producer = new Producer(new Redis(), { script: 'enqueue.lua' });
//   await producer.enqueue([{ kind: 'email.welcome', args: { UserID: 42 }, id: 'user-42-welcome' }]);
//   // [{ id: 'user-42-welcome', outcome: 'enqueued' }]

import { createHash, randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';

const classes = { high: '0', normal: '1', low: '2' };
const keys = ['jobs', 'due', 'idle', 'stats', 'cron', 'ready:high', 'ready:normal', 'ready:low', 'dead', 'cancelled', 'notes', 'settings',
  'completed', 'lined', 'turns', 'groups', 'unique', 'windows', 'expires'];
const outcomes = { 1: 'enqueued', D: 'replaced', C: 'replaced', F: 'replaced', 0: 'exists', s: 'exists', n: 'full' };
const fields = ['kind', 'args', 'id', 'delay', 'at', 'priority', 'headers', 'maxAttempts'];

// A QueueFull error says that the queue has as many jobs as it may have, and that jobs were left out: those of results whose outcome is 'full'. The others are in.
export class QueueFull extends Error {
  constructor(results) {
    super(`signalbox: the queue has as many jobs as it may have: ${results.filter((one) => one.outcome === 'full').length} of ${results.length} were left out`);
    this.name = 'QueueFull';
    this.results = results;
  }
}

// A Failed error says that a call failed; cause is the error of ioredis. results are those of the calls before it: of the first jobs. uncertain says that it isn't known
// whether the jobs of the call are in, as a try of it had no reply: enqueue them again with the same IDs. Else they aren't in. Those behind them never are.
export class Failed extends Error {
  constructor(results, uncertain, cause) {
    super(`signalbox: behind the first ${results.length} jobs ${uncertain ? "it isn't known which are in" : 'none is in'}: ${cause.message}`, { cause });
    this.name = 'Failed';
    this.results = results;
    this.uncertain = uncertain;
  }
}

// What Redis says in an outage.
const outages = /^(READONLY|LOADING|OOM|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|MISCONF|BUSY|UNKILLABLE|NOREPLICAS)\b/;

// A Producer puts jobs into one queue. Its calls follow one another.
export class Producer {
  #redis; #queue; #prefix; #registry; #script; #sha; #patience; #lane; #number; #used;
  #last = Promise.resolve();

  // redis is a client of ioredis. patience is how many seconds a call is made again while there is no reply.
  constructor(redis, { queue = 'default', namespace = 'default', script = new URL('../../../docs/enqueue.lua', import.meta.url), patience = 30 } = {}) {
    this.#redis = redis;
    this.#queue = named('queue', queue);
    this.#prefix = `signalbox:{${named('namespace', namespace)}:${queue}}:`;
    this.#registry = `signalbox:{${namespace}:}:queues`;
    this.#script = readFileSync(script, 'utf8');
    this.#sha = createHash('sha1').update(this.#script).digest('hex');
    this.#patience = patience;
    this.#beginLane();
  }

  // enqueue puts jobs in, in calls of 1,000, and resolves to { id, outcome } for each. An outcome is 'enqueued'; 'replaced', if the job took the
  // place of one that has ended and was kept; 'exists', if it was left out since a live job has its ID; 'full', if it was left out since the
  // queue has as many jobs as it may have. A job has
  //
  //   kind         which handler runs it
  //   args         its arguments, by default {}: what JSON.stringify takes. The job takes 1 MiB at most
  //   id           1 to 200 bytes of printable ASCII; by default a random one
  //   delay or at  seconds from now, 0 to 3,000,000,000, or a Date; by default now
  //   priority     'high', 'normal' or 'low'
  //   headers      an object of strings
  //   maxAttempts  1 to 1,000,000, by default 25
  //
  // Rejects with a TypeError if a job isn't one: then none is in; with QueueFull, which has the results, if jobs were left out; with Failed if Redis refuses a call, or
  // doesn't answer for as long as patience says. A call whose reply is lost is made again, and tells what the first try did.
  async enqueue(jobs) {
    const sent = jobs.map((job) => ({ id: job.id ?? randomBytes(16).toString('hex'), job }));
    for (const one of sent) one.args = argumentsOf(one.id, one.job); // all are looked at before the first is sent
    const results = [];
    for (let from = 0; from < sent.length; from += 1000) {
      const part = sent.slice(from, from + 1000);
      const call = this.#last.then(() => this.#call(part.flatMap((one) => one.args), [...results]));
      this.#last = call.catch(() => {});
      const replied = await call;
      part.forEach((one, i) => results.push({ id: one.id, outcome: outcomes[replied.length === 1 ? replied[0] : replied[i]] }));
    }
    if (results.some((one) => one.outcome === 'full')) throw new QueueFull(results);
    return results;
  }

  // A lane tells a call that is made again from a new one. It has one call under way.
  #beginLane() {
    this.#lane = randomBytes(16).toString('hex');
    this.#number = 0;
  }

  // before has the results of the calls before.
  async #call(args, before) {
    const began = performance.now();
    if (began - this.#used > 1_800_000) this.#beginLane(); // Redis forgets a lane an hour after its last call
    this.#used = began;
    this.#number++;
    const all = [`lane:${this.#lane}`, ...keys].map((key) => this.#prefix + key);
    let lost = false; // a try had no reply, so it may have been done: only the same call tells
    for (;;) {
      try {
        const [status, , replied, ...more] = await this.#evaluate(all, [`3 ${this.#number}`, ...args]);
        if (status !== 'ok') throw new Error('signalbox: a later call of this lane came first, though it has one call at a time');
        // The queue is listed for people and their tools. A worker does so, too.
        if (more.length > 1) await this.#redis.sadd(this.#registry, this.#queue).catch(() => {});
        return replied;
      } catch (error) {
        if (error.message.startsWith('signalbox')) throw error;
        const refused = error.name === 'ReplyError';
        lost ||= !refused;
        if (lost && (!refused || outages.test(error.message)) && performance.now() - began <= this.#patience * 1000) {
          await pause(100); // the same number again
          continue;
        }
        this.#beginLane();
        throw new Failed(before, lost || error.message.startsWith('NOPERM'), error);
      }
    }
  }

  async #evaluate(all, args) {
    try {
      return await this.#redis.evalsha(this.#sha, all.length, ...all, ...args);
    } catch (error) {
      if (!error.message.startsWith('NOSCRIPT')) throw error;
      return this.#redis.eval(this.#script, all.length, ...all, ...args);
    }
  }
}

function argumentsOf(id, job) {
  const unknown = Object.keys(job).find((field) => !fields.includes(field));
  if (unknown) throw new TypeError(`signalbox: a job has no ${unknown}`);
  const priority = job.priority ?? 'normal';
  if (!Object.hasOwn(classes, priority)) throw new TypeError(`signalbox: priority ${priority}, want high, normal or low`);
  return [named('id', id), classes[priority], timeOf(job), envelope(job)];
}

function timeOf({ at, delay }) {
  if (at !== undefined && delay !== undefined) throw new TypeError('signalbox: delay and at, want one of them');
  if (at !== undefined && !(at instanceof Date && at.getTime() > 0)) throw new TypeError(`signalbox: at ${at}, want a Date from 1970 on`);
  if (delay !== undefined && !(typeof delay === 'number' && delay >= 0 && delay <= 3e9)) throw new TypeError(`signalbox: delay ${delay}, want a number of seconds, 0 to 3,000,000,000`);
  if (at !== undefined) return `@${at.getTime() * 1000}`;
  return delay !== undefined ? `+${Math.round(delay * 1e6)}` : '';
}

function envelope(job) {
  const args = JSON.stringify(job.args ?? {});
  if (args === undefined) throw new TypeError('signalbox: args, want what JSON.stringify takes');
  const parts = [bytes(1, named('kind', job.kind)), bytes(2, args)];
  for (const [header, value] of Object.entries(job.headers ?? {})) {
    if (typeof value !== 'string') throw new TypeError(`signalbox: header ${JSON.stringify(header)}: want strings`);
    parts.push(bytes(3, Buffer.concat([bytes(1, header), bytes(2, value)])));
  }
  const attempts = job.maxAttempts;
  if (attempts !== undefined && !(Number.isInteger(attempts) && attempts >= 1 && attempts <= 1_000_000)) throw new TypeError(`signalbox: maxAttempts ${attempts}, want a whole number, 1 to 1,000,000`);
  if (attempts !== undefined) parts.push(Buffer.from([5 << 3, ...varint(attempts)]));
  if (job.id !== undefined) parts.push(Buffer.from([(9 << 3) + 1]), randomBytes(8)); // an ID that can come again: docs/wire.md, "The effect key"
  const all = Buffer.concat(parts);
  if (all.length > 1 << 20) throw new TypeError(`signalbox: the job takes ${all.length} bytes, want ${1 << 20} at most`);
  return all;
}

function bytes(field, value) {
  const content = Buffer.from(value);
  return Buffer.concat([Buffer.from([(field << 3) + 2, ...varint(content.length)]), content]);
}

function varint(number) {
  const out = [];
  for (; number > 127; number = Math.floor(number / 128)) out.push(number % 128 | 128);
  return [...out, number];
}

function named(field, value) {
  if (typeof value === 'string' && /^[\x21-\x7a\x7c\x7e]{1,200}$/.test(value)) return value;
  throw new TypeError(`signalbox: ${field} ${JSON.stringify(value)}, want 1 to 200 bytes of printable ASCII without spaces and braces`);
}
