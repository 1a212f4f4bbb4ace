// Package comeover moves the tasks of a service on the real asynq, while its servers and producers go on, and movers are killed.
package comeover
