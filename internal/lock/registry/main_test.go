package registry_test

import (
	"os"
	"testing"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/pkg/locktest"
)

var lab *labtest.Lab

func TestMain(m *testing.M) {
	locktest.RunIfAsked()
	os.Exit(labtest.Main(m, &lab))
}
