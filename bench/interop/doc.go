// Package interop has no code: its tests show that Signalbox's locks and those of redsync,
// bsm/redislock and the npm package redlock (4.2.0 and the beta of 5.0) exclude each other on
// the same keys, and that Redisson's, which are hashes, are told apart and left alone.
//
// The tests need redis-server, node and npm. Without them they are skipped, and fail if
// SIGNALBOX_TEST_REDIS=required. They install the two versions of redlock into
// node_modules beside this file, by the lock file, once.
package interop
