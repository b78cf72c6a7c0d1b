package hot

// Source is the script, for tests of its steps.
func Source() string { return source() }
