// usage: run.mjs ADDRESS QUEUE RESENDS. RESENDS is how often the client itself sends a command again after a lost connection. Each line of the input is a list of jobs in JSON, each of the output what became of them, or the error.
import { createInterface } from 'node:readline';
import { createRequire } from 'node:module';
import { Producer } from '../signalbox.mjs';

const { Redis } = createRequire(`${process.env.IOREDIS}/`)('ioredis'); // the folder where npm has installed it
const [host, port] = process.argv[2].split(':');
const redis = new Redis({ host, port: Number(port), maxRetriesPerRequest: Number(process.argv[4]) });
redis.on('error', () => {}); // the producer tells
const producer = new Producer(redis, { queue: process.argv[3] });
for await (const line of createInterface({ input: process.stdin })) {
  try {
    const jobs = JSON.parse(line).map(({ attempts, at, ...job }) => ({
      ...job, ...(attempts !== undefined && { maxAttempts: attempts }), ...(at !== undefined && { at: new Date(at) }),
    }));
    console.log(JSON.stringify({ results: await producer.enqueue(jobs) }));
  } catch (error) {
    console.log(JSON.stringify({ results: error.results, error: `${error.name}: ${error.message}` }));
  }
}
redis.disconnect();
