// Does what its standard input says with one version of redlock, and says on its standard
// output how that went. One JSON object a line, in both directions, in any order:
//
//   {"id", "op": "acquire", "key", "ttl", "wait"}  -> {"id", "lock"}   waits so many ms at most; 0: tries once
//   {"id", "op": "extend", "lock", "ttl"}          -> {"id"}
//   {"id", "op": "release", "lock"}                -> {"id"}
//   {"op": "quit"}
//
// If the library refuses, the answer has an "error". Arguments: redlock4 or redlock5, then the
// servers as host:port.
'use strict';

const Redis = require('ioredis');

const [version, ...servers] = process.argv.slice(2);
const clients = servers.map((addr) => {
  const [host, port] = addr.split(':');
  return new Redis({ host, port: Number(port) });
});

const retryDelay = 10; // ms, with jitter from half to one and a half of it
const settings = { retryCount: 0, retryDelay, retryJitter: retryDelay / 2 };
const Redlock = version === 'redlock4' ? require('redlock4') : require('redlock5').default;
const redlock = new Redlock(clients, settings);
redlock.on(version === 'redlock4' ? 'clientError' : 'error', () => {}); // what counts is the outcome

function acquire({ key, ttl, wait }) {
  if (version === 'redlock4') {
    return redlock.lockWithOptions(key, ttl, { retryCount: Math.ceil(wait / retryDelay) });
  }
  return acquire5(key, ttl, Date.now() + wait);
}

// Its own retries keep what an earlier try got on a minority of the servers, and find it taken: three
// clients, each with one server of three, block each other. So each try is a call.
async function acquire5(key, ttl, end) {
  for (;;) {
    try {
      return await redlock.acquire([key], ttl);
    } catch (error) {
      if (Date.now() >= end) {
        throw error;
      }
    }
    await new Promise((resume) => setTimeout(resume, retryDelay * (0.5 + Math.random())));
  }
}

const locks = new Map();

async function run(order) {
  switch (order.op) {
    case 'acquire':
      locks.set(order.id, await acquire(order));
      return { lock: order.id };
    case 'extend':
      locks.set(order.lock, await locks.get(order.lock).extend(order.ttl));
      return {};
    case 'release': {
      const lock = locks.get(order.lock);
      locks.delete(order.lock);
      await (version === 'redlock4' ? lock.unlock() : lock.release());
      return {};
    }
  }
  throw new Error(`unknown op ${order.op}`);
}

const say = (answer) => process.stdout.write(JSON.stringify(answer) + '\n');

require('readline')
  .createInterface({ input: process.stdin })
  .on('line', (line) => {
    const order = JSON.parse(line);
    if (order.op === 'quit') {
      process.exit(0);
    }
    run(order).then(
      (answer) => say({ id: order.id, ...answer }),
      (error) => say({ id: order.id, error: error.message }),
    );
  })
  .on('close', () => process.exit(0));
