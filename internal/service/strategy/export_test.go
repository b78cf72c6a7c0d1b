package strategy

// Locked makes an entry of a lock that only a test has.
var Locked = locked
