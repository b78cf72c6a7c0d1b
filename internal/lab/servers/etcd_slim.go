//go:build slim

package servers

import "context"

// startInside has nothing to start: a slim stockd, for a shop and not for a first
// look, is some 16 MiB smaller in memory without etcd's server in it.
func (*Etcd) startInside(context.Context) (stop func(), err error) {
	return nil, &MissingError{What: "embedded etcd", How: "this stockd was built without it (-tags slim)"}
}
