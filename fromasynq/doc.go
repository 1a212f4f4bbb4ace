// Package fromasynq moves the tasks of asynq into queues of Signalbox. It reads asynq's Redis, and doesn't need its library. asynq's servers and producers may go on meanwhile.
//
//	m, err := fromasynq.New(asynqRedis, rdb, fromasynq.Config{})
//	...
//	report, err := m.Plan(ctx) // what would be moved, and what stays and why; it changes nothing
//	report, err = m.Move(ctx)  // may be called again after any error, and by several processes at once
//
// Pending, scheduled, retrying and archived tasks are moved, each with its ID, payload, headers, times, number of failures, last error, timeout and retention. [Config.Map] says what a task
// becomes where that isn't the same. Tasks that are active, that are kept after they have completed, and those of groups that wait to be aggregated stay where they are.
//
// # What is promised
//
// If neither Redis fails over, no task is lost, and none is put in here that asynq holds active or has acknowledged. That holds wherever a mover is killed, if Move is called again within 30 days with the same
// Redis to move to. asynq itself may start a task again whose handler still runs. So where an effect must happen once, handlers on both sides name it by one key: a job that was moved has the effect key
// asynq/<queue>/<id>.
//
// A task that is on its way is *staged*: asynq doesn't know it, its Inspector says "not found", and its unique key is still taken. [Mover.Undo] gives staged tasks back.
//
// docs/from-asynq.md has the steps of a whole service, and decision 52 the protocol.
package fromasynq
