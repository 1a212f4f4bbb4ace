package zklock

const childEnv = "ZKLOCK_TEST_CHILD"

func runChild(string) {}
