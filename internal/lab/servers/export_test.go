package servers

import "context"

// AsksFor asks a Redis whether it is a process.
func (r *Redis) AsksFor(ctx context.Context, pid int) error { return r.readVersion(ctx, pid) }

// AsksFor asks an etcd whether it is a member.
func (e *Etcd) AsksFor(ctx context.Context, member string) error {
	other := *e
	other.name = member
	return other.readVersion(ctx, 0)
}

// AsksFor asks a ZooKeeper whether its data is in a folder.
func (z *ZooKeeper) AsksFor(ctx context.Context, folder string) error {
	other, server := *z, *z.server
	server.spec.Folder, other.server = folder, &server
	return other.readVersion(ctx, 0)
}
