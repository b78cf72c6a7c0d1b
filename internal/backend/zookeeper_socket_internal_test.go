package backend

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"
)

// request is what the library writes: length, number, and operation.
func request(operation uint32) []byte {
	b := make([]byte, 12)
	binary.BigEndian.PutUint32(b, 8)
	binary.BigEndian.PutUint32(b[8:], operation)
	return b
}

// Only the answer to the credentials arrives before the watches are set: without it the library
// would not set them.
func TestZKAnswersAreHeldBackUntilTheWatchesAreSet(t *testing.T) {
	const get = 4
	ours, server := net.Pipe()
	defer server.Close()       //nolint:errcheck // the test is over
	go io.Copy(server, server) //nolint:errcheck // answers until it is closed
	s := &zkSocket{
		Conn: ours, lost: func() {}, handshake: time.NewTimer(time.Hour), set: make(chan struct{}), settle: time.Minute,
	}
	exchange := func(operation uint32) (answered chan struct{}) {
		if _, err := s.Write(request(operation)); err != nil {
			t.Fatal(err)
		}
		answered = make(chan struct{})
		go func() {
			defer close(answered)
			if _, err := io.ReadFull(s, make([]byte, 12)); err != nil {
				t.Error(err)
			}
		}()
		return answered
	}
	<-exchange(setWatches) // the library introduces itself: the epoch that it has seen stands there
	s.greet()
	<-exchange(setAuth)
	early := exchange(get)
	select {
	case <-early:
		t.Error("an answer arrives before the watches are set")
	case <-time.After(50 * time.Millisecond):
	}
	if _, err := s.Write(request(setWatches)); err != nil {
		t.Fatal(err)
	}
	<-early
}
