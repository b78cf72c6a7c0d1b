package servers

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// sessionWithin bounds the requests that end a session, and in milliseconds the
	// time-out of the session meanwhile.
	sessionMillis = 5000
	sessionWithin = sessionMillis * time.Millisecond
	// passwordLength is that of the password of a session, in bytes.
	passwordLength = 16
)

// ExpireZooKeeper ends a session on a ZooKeeper, as if its client had been silent
// for too long: its ephemeral nodes are deleted, its connection is closed, and the
// client gets "session expired" when it reconnects. Which session a node
// is of is in its Stat.EphemeralOwner.
//
// A second connection takes the session over and closes it. The password that this
// needs is derived from the session's number.
func ExpireZooKeeper(ctx context.Context, address string, session int64) error {
	ctx, cancel := context.WithTimeout(ctx, sessionWithin)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("expire session %#x: %w", session, err)
	}
	defer conn.Close()                                      //nolint:errcheck // the session has ended, or we say why not
	defer context.AfterFunc(ctx, func() { conn.Close() })() //nolint:errcheck // ends what waits
	if err := takeOver(conn, session); err != nil {
		return fmt.Errorf("expire session %#x: %w", session, err)
	}
	const number, closeSession = 1, 1<<32 - 11 // -11, as a word
	request := binary.BigEndian.AppendUint32(nil, number)
	if _, err := askZooKeeper(conn, binary.BigEndian.AppendUint32(request, closeSession)); err != nil {
		return fmt.Errorf("expire session %#x: %w", session, err)
	}
	return nil
}

func takeOver(conn net.Conn, session int64) error {
	id := uint64(session) //nolint:gosec // its bits are meant
	var request []byte
	request = append(request, make([]byte, 12)...) // the version, and the last change that was seen: none
	request = binary.BigEndian.AppendUint32(request, sessionMillis)
	request = binary.BigEndian.AppendUint64(request, id)
	request = binary.BigEndian.AppendUint32(request, passwordLength)
	request = append(request, zooKeeperPassword(id)...)
	request = append(request, 0) // not for reading alone
	answer, err := askZooKeeper(conn, request)
	if err != nil {
		return err
	}
	// The version and the time-out come before the session, which is 0 where
	// there is none.
	const at = 8
	if len(answer) < at+8 || binary.BigEndian.Uint64(answer[at:]) != id {
		return errors.New("there is no such session")
	}
	return nil
}

// askZooKeeper sends a request and reads its answer, each with its length before
// it.
func askZooKeeper(conn net.Conn, request []byte) ([]byte, error) {
	length := uint32(len(request)) //nolint:gosec // tens of bytes
	if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, length), request...)); err != nil {
		return nil, err
	}
	header := make([]byte, 4)
	if _, err := io.ReadFull(conn, header); err != nil {
		return nil, err
	}
	const most = 1 << 10
	size := binary.BigEndian.Uint32(header)
	if size > most {
		return nil, fmt.Errorf("an answer of %d bytes is none to this", size)
	}
	answer := make([]byte, size)
	_, err := io.ReadFull(conn, answer)
	return answer, err
}

// zooKeeperPassword is the password of a session: what java.util.Random makes of
// its number and of a constant of ZooKeeper's.
func zooKeeperPassword(session uint64) []byte {
	const (
		secret     = 0xB3415C00
		multiplier = 0x5DEECE66D
		mask       = 1<<48 - 1
	)
	state := (session ^ secret ^ multiplier) & mask
	var password []byte
	for range passwordLength / 4 {
		state = (state*multiplier + 0xB) & mask
		password = binary.LittleEndian.AppendUint32(password, uint32(state>>16))
	}
	return password
}

// RevokeLease ends the lease on an etcd that a key is bound to, as if its client
// had been silent for too long.
func RevokeLease(ctx context.Context, client *clientv3.Client, key string) error {
	found, err := client.Get(ctx, key)
	if err != nil {
		return fmt.Errorf("revoke the lease of %s: %w", key, err)
	}
	if len(found.Kvs) == 0 || found.Kvs[0].Lease == 0 {
		return fmt.Errorf("revoke the lease of %s: it has none", key)
	}
	if _, err := client.Revoke(ctx, clientv3.LeaseID(found.Kvs[0].Lease)); err != nil {
		return fmt.Errorf("revoke the lease of %s: %w", key, err)
	}
	return nil
}
