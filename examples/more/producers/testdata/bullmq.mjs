// usage: bullmq.mjs PORT. Fills the queue mail of BullMQ. The data say how many attempts a job has.
import { Queue, Worker } from 'bullmq';
const connection = { host: '127.0.0.1', port: Number(process.argv[2]) };
const queue = new Queue('mail', { connection });
const add = (count, opts) => queue.addBulk(Array.from({ length: count }, (_, i) => ({ name: 'email.welcome', data: { attempts: opts.attempts ?? 1 }, opts: { jobId: `müller {${opts.id}} ${i}`, ...opts } })));

await add(20, { id: 'failed', attempts: 2 });
const worker = new Worker('mail', async () => { throw new Error('the mailer is down'); }, { connection, concurrency: 10, skipStalledCheck: true });
while (await queue.getFailedCount() < 20) await new Promise((done) => setTimeout(done, 20));
await worker.close(); await queue.retryJobs();
await add(100, { id: 'waiting', attempts: 6, backoff: 1000 });
await add(60, { id: 'delayed', delay: 1500 });
await add(40, { id: 'prioritized', priority: 7 });
await add(80, { id: 'not-kept', removeOnFail: true });
await queue.add('a name with spaces', {}, { jobId: 'no kind' });
await queue.upsertJobScheduler('digest', { every: 3_600_000 }, { name: 'digest' });
if (!await queue.removeJobScheduler('digest')) throw new Error('there was no scheduler');
await queue.close();
