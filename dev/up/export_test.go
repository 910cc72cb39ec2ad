package up

// Signal is how Down reaches a supervisor.
var Signal = State.signal
