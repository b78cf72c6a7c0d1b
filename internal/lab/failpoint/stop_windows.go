package failpoint

// canStop is whether a process can be stopped and go on: Windows has no signal for it.
const canStop = false

func stop() {}
