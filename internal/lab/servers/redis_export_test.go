package servers

import "context"

// AsksFor asks a Redis whether it is a process.
func (r *Redis) AsksFor(ctx context.Context, pid int) error { return r.readVersion(ctx, pid) }
