package outbox_test

const childEnv = "SEAHUB_OUTBOX_TEST_CHILD"

func runChild(string) int { return 0 }
