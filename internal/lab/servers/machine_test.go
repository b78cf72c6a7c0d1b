package servers_test

import (
	"os"
	"testing"

	"github.com/stockd/stockd/internal/lab/servers"
)

func TestPeakMemoryIsThatOfTheProcess(t *testing.T) {
	before, err := servers.Resident(os.Getpid(), servers.PeakMemory)
	if err != nil {
		t.Skip("no /proc here: ", err)
	}
	block := make([]byte, 64<<20)
	for i := range block {
		block[i] = byte(i)
	}
	after, err := servers.Resident(os.Getpid(), servers.PeakMemory)
	if err != nil || after-before < 32<<20 {
		t.Errorf("64 MiB more took the peak from %d to %d (%v); %d", before, after, err, block[5])
	}
}
