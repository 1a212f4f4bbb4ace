package etcdlock

const childEnv = "SIGNALBOX_ETCDLOCK_CHILD"

func childMain(string) {}
